"""Holds of limits in the one atomic step of admission: all or nothing, settled by count, released once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from uuid import UUID

import pytest
from msgspec.structs import replace

from apps.billing import balances, reservations
from apps.billing.balances import Balance
from apps.billing.ledger import Charge
from apps.billing.reconciliation import compare_holds
from apps.billing.reservations import Hold, ReachedLimit, ReservationOutcome, TokenRequest
from apps.gateway.admission import admit
from apps.gateway.settlement import outbox
from apps.kernel.ids import new_id
from apps.kernel.valkey.redis import client
from apps.limits.applied import AppliedLimit, AppliedLimits, Bucket
from apps.limits.models import Limit
from apps.limits.windows import WindowKind
from tests.limits.limits import NOW, ORGANIZATION, applied, ask, count, held, of_key, use

ALL = TokenRequest(100, 100, 100)


@pytest.fixture(autouse=True)
def streams() -> None:
    outbox.prepare()


def publish_used(bucket: Bucket, units: int) -> None:
    """Give the store a copy of a counter with so much used."""
    amount = Decimal(units).scaleb(-9)
    balances.publish_or_raise([Balance("limit", bucket.counter_id, amount, 1, 0, ORGANIZATION)])


def publish_credits(nanos: int, version: int) -> None:
    """Give the store a new copy of the organization's credits."""
    client().delete(balances.key("organization", ORGANIZATION))
    balances.publish_or_raise([Balance("organization", ORGANIZATION, Decimal(nanos).scaleb(-9), version)])


def held_of_credits() -> int:
    return int(client().hget(balances.key("organization", ORGANIZATION), "held") or 0)


def used_in_store(bucket: Bucket) -> int:
    return int(client().hget(bucket.counter, "amount") or 0)


def end(hold: Hold, limits: Sequence[AppliedLimit], *, cost: str = "0", read: int = 0, written: int = 0) -> None:
    """Push the record of a request that cost and counted so much."""
    counted = use(
        limits,
        model_id="echo",
        provider_id="sandbox",
        cost=Decimal(cost),
        input_tokens=read,
        output_tokens=written,
    )
    charge = Charge(ORGANIZATION, new_id(), new_id(), Decimal(0), Decimal(cost))
    outbox.push("worker-1", b"{}", admit.settle(hold, charge, counted))


@pytest.mark.parametrize(
    ("counts", "holds", "stays"),
    [("usd", 3_000_000, 2_000_000), ("requests", 1, 1), ("tokens", 150, 47), ("input_tokens", 50, 40)],
)
def test_a_request_holds_its_worst_case_then_its_use_then_nothing(counts: str, holds: int, stays: int) -> None:
    one = applied(counts, "1000")
    answer = ask([one], nanos=3_000_000, prompt=50, tokens=ALL)
    assert answer.outcome is ReservationOutcome.HELD
    assert answer.hold is not None
    assert held(one) == holds
    assert list(compare_holds()) == []
    end(answer.hold, [one], cost="0.002", read=40, written=7)
    assert held(one) == stays
    # The record is pushed a second time, because the answer of the store was lost.
    end(answer.hold, [one], cost="0.002", read=40, written=7)
    assert held(one) == stays
    assert list(compare_holds()) == []
    assert reservations.release([("worker-1", UUID(answer.hold.id))], 0) == 1
    assert held(one) == 0


def test_output_tokens_of_an_answer_without_any_are_released() -> None:
    one = applied("output_tokens", "1000")
    answer = ask([one], tokens=TokenRequest())
    assert answer.hold is not None
    end(answer.hold, [one])
    assert reservations.release([("worker-1", UUID(answer.hold.id))], 0) == 1
    assert held(one) == 0


def test_a_reservation_asked_for_twice_is_held_once_with_the_same_tokens() -> None:
    one, identifier = applied("tokens", "1000"), new_id()
    first, second = (ask([one], prompt=50, tokens=TokenRequest(800, 100, 10), id=identifier) for _ in range(2))
    assert first.hold == second.hold
    assert first.hold is not None
    # A lone request gets a quarter of the remaining tokens for its answer.
    assert (first.hold.tokens, held(one)) == (237, 287)


def test_an_answer_that_is_granted_all_it_wants_has_no_limit_of_tokens() -> None:
    one = applied("output_tokens", "1000")
    whole, part = (ask([one], tokens=TokenRequest(want, 30, 1)) for want in (60, 600))
    assert whole.hold is not None
    assert part.hold is not None
    # The second gets 1/16 of the remaining tokens.
    assert (whole.hold.tokens, part.hold.tokens, held(one)) == (None, 58, 118)


def test_the_tightest_limit_refuses_and_nothing_is_held() -> None:
    wide, tight, usd = applied("requests", "10"), applied("tokens", "120"), applied("usd", "1")
    answer = ask([wide, tight, usd], nanos=5, prompt=30, tokens=ALL)
    assert (answer.outcome, answer.reached) == (ReservationOutcome.LIMIT_REACHED, ReachedLimit(1, 0, 0, 130))
    assert [held(one) for one in (wide, tight, usd)] == [0, 0, 0]
    assert reservations.notes_of("worker-1", 0) == {}


def test_a_limit_that_warns_lets_in_counts_and_tells() -> None:
    first, second = applied("requests", "1", refuses=False), applied("usd", "9", refuses=False)
    assert ask([first, second], nanos=5).limits == ()
    answer = ask([first, second], nanos=5)
    assert (answer.outcome, answer.limits) == (ReservationOutcome.HELD, (0,))
    assert (held(first), held(second)) == (2, 10)


def test_counters_without_copies_are_all_named() -> None:
    limits = [applied("requests"), applied("usd"), applied("tokens")]
    client().delete(limits[0].counter, limits[2].counter)
    answer = ask(limits)
    assert (answer.outcome, answer.unknown, answer.limits) == (ReservationOutcome.UNKNOWN, "limit", (0, 2))
    assert held(limits[1]) == 0


def test_a_stream_extends_its_hold_within_a_limit_of_money() -> None:
    one = applied("usd", "0.000001")
    answer = ask([one], nanos=400)
    assert answer.hold is not None
    more = reservations.extend(answer.hold, 500, 500, 500)
    assert (more.growth, more.hold.amount_nanos, held(one)) == (reservations.ExtensionOutcome.HELD, 900, 900)
    short = reservations.extend(more.hold, 200, 200, 200)
    assert (short.growth, short.balance, held(one)) == (reservations.ExtensionOutcome.SHORT, one.counter, 900)


@pytest.mark.parametrize(
    ("counts", "amount", "fits"),
    [("requests", "20", 20), ("usd", "0.00000001", 3), ("tokens", "1000", 7), ("output_tokens", "1000", 10)],
)
def test_of_fifty_requests_at_once_exactly_those_that_fit_are_let_in(counts: str, amount: str, fits: int) -> None:
    one = applied(counts, amount)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: ask([one], nanos=3, prompt=40, least_nanos=3, tokens=ALL), range(50)))
    assert [answer.outcome for answer in answers].count(ReservationOutcome.HELD) == fits
    assert held(one) == fits * {"requests": 1, "usd": 3, "tokens": 140, "output_tokens": 100}[counts]


def test_of_fifty_requests_at_once_a_keys_own_limit_lets_in_what_fits() -> None:
    one, other = of_key(1_000, used=400, used_before=100), applied("requests", "100")
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: ask([one, other], nanos=30, least_nanos=30), range(50)))
    outcomes = [answer.outcome for answer in answers]
    # 300 of the period's 1,000 are used.
    assert (outcomes.count(ReservationOutcome.HELD), outcomes.count(ReservationOutcome.OVER_LIMIT)) == (23, 27)
    assert (held(one), held(other)) == (690, 23)


def test_a_keys_own_limit_is_held_extended_and_settled_as_the_others_and_counted_by_the_ledger() -> None:
    one, other = of_key(1_000, used=400), applied("usd", "0.000001")
    answer = ask([one, other], nanos=500)
    assert answer.hold is not None
    assert (answer.key_left, held(one), held(other)) == (100, 500, 500)
    short = reservations.extend(answer.hold, 200, 200, 101)
    assert (short.growth, short.balance) == (reservations.ExtensionOutcome.SHORT, one.counter)
    more = reservations.extend(answer.hold, 100, 100, 100)
    assert (more.growth, held(one), held(other)) == (reservations.ExtensionOutcome.HELD, 600, 600)
    end(more.hold, [one, other], cost="0.00000025")
    assert (held(one), held(other)) == (250, 250)
    answered = {"model_id": "echo", "provider_id": "sandbox", "cost": Decimal(1), "input_tokens": 1, "output_tokens": 1}
    counted = count([one, other], **answered).counters.counters
    assert [counter.limit_id for counter in counted] == [other.rule.id]
    client().delete(one.counter)
    lost = ask([one, other])
    assert (lost.outcome, lost.unknown) == (ReservationOutcome.UNKNOWN, "key")


def test_a_rolling_limit_counts_the_windows_before_and_holds_on_the_present_one() -> None:
    one = applied("usd", "0.000001", window=WindowKind.HOUR, rolling=3)
    present, before, oldest = one.buckets
    publish_used(before, 300)
    publish_used(oldest, 400)
    client().hincrby(before.counter, "held", 50)
    refused = ask([one], nanos=251, least_nanos=251)
    assert refused.reached == ReachedLimit(0, 700, 50, 251)
    answer = ask([one], nanos=200)
    assert answer.hold is not None
    assert [int(client().hget(each.counter, "held") or 0) for each in one.buckets] == [200, 50, 0]
    # 50 are left, also to a stream that goes on.
    short = reservations.extend(answer.hold, 51, 51, 51)
    assert (short.growth, short.balance) == (reservations.ExtensionOutcome.SHORT, one.counter)
    more = reservations.extend(answer.hold, 50, 50, 50)
    assert (more.growth, held(one)) == (reservations.ExtensionOutcome.HELD, 250)
    client().delete(oldest.counter)
    assert (ask([one]).unknown, ask([one]).limits) == ("limit", (2,))
    lost = reservations.extend(more.hold, 1, 1, 1)
    assert (lost.growth, lost.balance) == (reservations.ExtensionOutcome.UNKNOWN, oldest.counter)
    assert present.counter == one.counter


def test_counters_without_copies_are_named_among_those_of_several_limits() -> None:
    limits = [applied(), applied(window=WindowKind.DAY, rolling=2), applied("usd", window=WindowKind.HOUR, rolling=3)]
    buckets = AppliedLimits.prepare(limits, NOW).buckets
    gone = [buckets[place] for place in (1, 3, 5)]
    assert gone == [limits[1].buckets[0], limits[1].buckets[1], limits[2].buckets[2]]
    client().delete(*[one.counter for one in gone])
    assert ask(limits).limits == (1, 3, 5)
    assert [held(one) for one in limits] == [0, 0, 0]


def needs_of(nanos: int, prompt: int, answer: int) -> dict[str, int]:
    """Return what a request needs of limits, by what they count."""
    return {
        "usd": nanos,
        "requests": 1,
        "tokens": prompt + answer,
        "input_tokens": prompt,
        "output_tokens": answer,
    }


def test_random_requests_under_random_limits_agree_with_an_oracle() -> None:
    draw = random.Random(11)
    kinds = ("usd", "requests", "tokens", "input_tokens", "output_tokens")
    for _ in range(25):
        limits: list[AppliedLimit] = []
        before: dict[str, int] = {}
        for _ in range(draw.randint(1, 6)):
            counts = draw.choice(kinds)
            amount = draw.choice((0, 1, 7, 200, 900))
            text = str(Decimal(amount).scaleb(-9)) if counts == "usd" else str(amount)
            rolling = draw.choice((1, 1, 2, 4))
            # One on another model than that which answers is held on all the same, until the record comes.
            model = draw.choice(("", "", "", "gpt-*"))
            one = applied(counts, text, refuses=draw.random() < 0.8, rolling=rolling, model=model)
            for bucket in one.buckets[1:]:
                publish_used(bucket, draw.choice((0, 1, amount // 4)))
                before[one.counter] = before.get(one.counter, 0) + used_in_store(bucket)
            # An optional limit covers all that the request wants; an open one reroutes to its models.
            is_optional, is_open = one.rule.refuses and draw.random() < 0.4, draw.random() < 0.15
            limits.append(replace(one, is_optional=is_optional, is_open=is_open))
        if draw.random() < 0.6:
            # The key's own, of which some was used before its period, and some since.
            earlier, since = draw.choice((0, 5)), draw.choice((0, 1, 40))
            own = of_key(draw.choice((0, 1, 200, 900)), earlier + since, earlier)
            limits.insert(0, own)
            before[own.counter] = since
        credits = draw.choice((None, 0, 150, 800))
        if credits is not None:
            publish_credits(credits, draw.randrange(2**30))
        totals, on_credits = dict.fromkeys(range(len(limits)), 0), 0
        open_holds: list[tuple[Hold, list[int], int]] = []
        recorded: set[str] = set()
        for _ in range(25):
            nanos, prompt, answer = draw.choice((0, 3, 60)), draw.choice((1, 40)), draw.choice((0, 1, 90))

            def room(one: AppliedLimit, used: dict[str, int] = before) -> int:
                return one.capacity - used.get(one.counter, 0)

            least = draw.choice((0, answer)), draw.choice((0, nanos))
            whole, small = needs_of(nanos, prompt, answer), needs_of(least[1], prompt, least[0])
            refusing = [
                one
                for at, one in enumerate(limits)
                if one.rule.refuses
                and not one.is_open
                and (
                    totals[at] + (whole if one.is_optional else small)[one.rule.counts] > room(one)
                    or totals[at] >= room(one)
                )
            ]
            is_short = credits is not None and (on_credits + least[1] > credits or on_credits >= credits)
            found = ask(
                limits,
                nanos=nanos,
                least_nanos=least[1],
                prompt=prompt,
                tokens=TokenRequest(answer, least[0], least[0]),
                from_credits=credits is not None,
            )
            # The key's own limit is the first to refuse, then credits.
            if refusing and refusing[0].rule.field:
                assert found.outcome is ReservationOutcome.OVER_LIMIT
                assert found.left_nanos == room(refusing[0]) - totals[0]
            elif is_short:
                assert found.outcome is ReservationOutcome.NO_CREDITS
            elif refusing:
                assert found.outcome is ReservationOutcome.LIMIT_REACHED
                assert found.reached is not None
                assert limits[found.reached.place] is refusing[0]
            else:
                assert found.outcome is ReservationOutcome.HELD
            if found.hold is not None:
                granted = answer if found.hold.tokens is None else found.hold.tokens
                assert least[0] <= granted <= answer
                assert least[1] <= found.hold.amount_nanos <= nanos
                needs = needs_of(found.hold.amount_nanos, prompt, granted)
                needed = [needs[one.rule.counts] for one in limits]
                for at, more in enumerate(needed):
                    totals[at] += more
                of_credits = 0 if credits is None else found.hold.amount_nanos
                on_credits += of_credits
                open_holds.append((found.hold, needed, of_credits))
            if open_holds and draw.random() < 0.5:
                hold, needed, of_credits = open_holds.pop(draw.randrange(len(open_holds)))
                for at, more in enumerate(needed):
                    totals[at] -= more
                on_credits -= of_credits
                if draw.random() < 0.5:
                    reservations.release([("worker-1", UUID(hold.id))], 0)
                else:
                    cost, read, written = draw.choice((0, 2, 70)), draw.choice((0, 40, 50)), draw.choice((0, 1, 100))
                    end(hold, limits, cost=str(Decimal(cost).scaleb(-9)), read=read, written=written)
                    if hold.id not in recorded:
                        used = needs_of(cost, read, written)
                        # Its credits were not used.
                        needed = [0 if one.rule.model else used[one.rule.counts] for one in limits]
                        recorded.add(hold.id)
                    # A record that is pushed again changes nothing.
                    for at, more in enumerate(needed):
                        totals[at] += more
                    open_holds.append((hold, needed, 0))
            assert [held(one) for one in limits] == list(totals.values())
            assert credits is None or held_of_credits() == on_credits
        # The notes say the same.
        assert list(compare_holds()) == []
        for hold, _, _ in open_holds:
            reservations.release([("worker-1", UUID(hold.id))], 0)
        assert [held(one) for one in limits] == [0] * len(limits)
        assert credits is None or held_of_credits() == 0


def test_each_measure_has_a_letter_of_its_own() -> None:
    """The scripts know a measure by its first letter: another with the same would be held and counted as this one."""
    assert sorted(one[0] for one in Limit.Counts.values) == ["i", "o", "r", "t", "u"]
