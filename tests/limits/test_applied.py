"""Which limits hold for a request, and what it adds to them."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from apps.kernel.ids import new_id
from apps.limits.applied import Answerer, PolicyLimits, RecordedCounter, describe, find_applying, read_counted
from apps.limits.models import Limit
from apps.limits.windows import WindowKind
from tests.limits.limits import NOW, amounts_of, count, rule


def at(*models: str, provider: str = "sandbox") -> list[Answerer]:
    """Return models at a provider."""
    return [(model, provider) for model in models]


def test_a_limit_on_a_model_holds_where_the_model_may_answer() -> None:
    named, pattern = rule(scope="model", model="gpt-5"), rule(scope="key", model="claude-*")
    assert [one.rule for one in find_applying([named, pattern], at("gpt-5"), None, NOW)] == [named]
    assert [one.rule for one in find_applying([named, pattern], at("gpt-5-mini", "claude-opus"), None, NOW)] == [
        pattern
    ]
    assert find_applying([named, pattern], at("gpt-5-mini", "my-claude-1"), None, NOW) == ()


def test_an_end_users_own_limit_replaces_the_limit_of_each_with_the_same_count_and_window() -> None:
    each, own = rule(scope="end_user"), rule(scope="end_user", amount="99", end_user="vip")
    other = rule("usd", scope="end_user")
    rules = [each, own, other]
    assert [one.rule for one in find_applying(rules, at("echo"), "vip", NOW)] == [own, other]
    assert [one.rule for one in find_applying(rules, at("echo"), "someone", NOW)] == [each, other]
    assert find_applying(rules, at("echo"), None, NOW) == ()


def test_end_users_have_counters_of_their_own_whatever_their_ids() -> None:
    one = rule(scope="end_user")
    ids = ["a", "b", "a" * 100_000, "\ud800", "a:b"]
    found = {find_applying([one], at("echo"), name, NOW)[0].counter_id for name in ids}
    assert len(found) == len(ids)
    assert find_applying([one], at("echo"), "a", NOW)[0].counter_id in found


def test_each_window_has_a_counter_and_a_raise_holds_until_its_moment() -> None:
    one = rule(raised_amount=Decimal(50), raised_until=NOW + 10)
    now, later = (find_applying([one], at("echo"), None, NOW + seconds)[0] for seconds in (0, 10))
    assert (now.capacity, later.capacity, now.counter_id == later.counter_id) == (50, 10, True)
    assert find_applying([one], at("echo"), None, NOW + 86_400)[0].counter_id != now.counter_id


def test_a_request_adds_what_is_counted_and_nothing_to_limits_on_models_that_did_not_answer() -> None:
    rules = [rule("usd"), rule(), rule("tokens"), rule("input_tokens"), rule("output_tokens"), rule(model="gpt-*")]
    limits = find_applying(rules, at("echo", "gpt-5"), None, NOW)
    found = count(limits, model_id="echo", provider_id="sandbox", cost=Decimal("0.1"), input_tokens=7, output_tokens=0)
    assert [(one.limit_id, one.counts, amount) for one, amount in amounts_of(found)] == [
        (rules[0].id, "usd", Decimal("0.1")),
        (rules[1].id, "requests", 1),
        (rules[2].id, "tokens", 7),
        (rules[3].id, "input_tokens", 7),
    ]
    window = limits[0].window
    assert found.counters.counters[1] == RecordedCounter(
        limits[1].counter_id, rules[1].id, window.starts_at, window.ends_at, Limit.Counts.REQUESTS
    )


def test_a_record_is_charged_as_it_was_written_within_the_bounds_of_columns() -> None:
    ids = [str(new_id()) for _ in range(8)]
    counters = [[ids[k], ids[4 + k], 0, None, name] for k, name in enumerate(("usd", "requests", "tokens", "usd"))]
    amounts = {"usd": "0.0000000000019", "requests": 1, "tokens": 10**15, "input_tokens": 10**15, "output_tokens": 0}
    found = read_counted(msgspec.Raw(msgspec.json.encode({"amounts": amounts, "counters": counters})))
    assert found.text == (
        f'[["{ids[0]}","2E-12"],["{ids[1]}","1"],["{ids[2]}","999999999999.999999999999"],["{ids[3]}","2E-12"]]'
    )
    amounts |= {"usd": "NaN", "requests": 0, "tokens": -5}
    nothing = read_counted(msgspec.Raw(msgspec.json.encode({"amounts": amounts, "counters": counters})))
    assert (nothing.text, nothing.amounts) == ("[]", {})
    # Requests alike are charged together.
    assert nothing.counters is found.counters


def test_a_rolling_limit_has_a_counter_for_each_hour() -> None:
    one = rule(window=WindowKind.HOUR, rolling=3)
    now, later = (find_applying([one], at("echo"), None, NOW + seconds)[0] for seconds in (0, 3_600))
    assert [bucket.window.starts_at for bucket in now.buckets] == [
        now.window.starts_at - hours * 3_600 for hours in range(3)
    ]
    assert [bucket.counter_id for bucket in now.buckets[:2]] == [bucket.counter_id for bucket in later.buckets[1:]]
    assert now.buckets[0].used_until == now.window.starts_at + 3 * 3_600
    assert describe(now) == 'limit "ours" of the organization, 10 requests in 3 hours'


def test_limits_are_prepared_once_until_a_window_or_a_raise_ends() -> None:
    raised = rule(window=WindowKind.HOUR, raised_amount=Decimal(50), raised_until=NOW + 10)
    limits = PolicyLimits([raised, rule("usd"), rule(scope="end_user"), rule(model="gpt-*")])
    first = limits.find(tuple(at("echo")), "a", NOW)
    assert first is not None
    assert limits.find(tuple(at("echo")), "a", NOW + 9) is first
    assert [one.capacity for one in first.limits] == [50, 10 * 10**9, 10]
    assert limits.find(tuple(at("echo")), "b", NOW) is not first
    assert limits.find(tuple(at("gpt-5")), "a", NOW) is not first
    after = limits.find(tuple(at("echo")), "a", NOW + 10)
    assert after is not None
    assert (after.limits[0].capacity, after.limits[0].counter) == (10, first.limits[0].counter)
    # A clock that is set back meets the raise again.
    before = limits.find(tuple(at("echo")), "a", NOW + 9)
    assert before is not None
    assert before.limits[0].capacity == 50
    following = limits.find(tuple(at("echo")), "a", NOW + 3_600)
    assert following is not None
    assert following.limits[0].counter != first.limits[0].counter
    assert PolicyLimits([rule(model="gpt-*")]).find(tuple(at("echo")), None, NOW) is None
    money = limits.of_money
    assert money is not None
    assert [one.counts for one in money.rules] == ["usd"]


def test_prepared_limits_of_many_end_users_are_bounded() -> None:
    limits = PolicyLimits([rule(scope="end_user")])
    for number in range(200):
        assert limits.find((), f"user {number}", NOW) is not None
    limits.find((), "x" * 10_000, NOW)
    assert 0 < len(limits._prepared) <= 64


def test_a_lifetime_has_one_counter() -> None:
    one = rule(window=WindowKind.LIFETIME)
    assert (
        find_applying([one], at("echo"), None, 0)[0].counter_id == find_applying([one], at(""), None, NOW)[0].counter_id
    )
