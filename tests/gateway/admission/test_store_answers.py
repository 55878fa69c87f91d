"""The question that admission asks the store, and each answer's outcome; exact, with made-up answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.billing import reservations
from apps.billing.ledger import Charge
from apps.billing.reservations import (
    ExtensionOutcome,
    Hold,
    HoldExtension,
    RateLimit,
    RateLimitStatus,
    ReachedLimit,
    ReservationOutcome,
    ReservationRequest,
    ReservationResult,
    TokenRequest,
)
from apps.catalog import catalog_cache
from apps.catalog.offers import Catalog
from apps.gateway.access import policy as policies
from apps.gateway.access.policy import Policy
from apps.gateway.admission import admit as admission
from apps.gateway.admission import offline_accounts, offline_admission
from apps.gateway.admission.admit import AdmissionGrant, ProviderLimitReached, RerouteLimitReached
from apps.gateway.admission.offline_accounts import OfflineAccount, OfflineHold
from apps.gateway.admission.worst_case import Tariff, WorstCase
from apps.kernel.errors import ApiError, Gone, Overloaded, PaymentRequired, RateLimited
from apps.kernel.ids import new_id
from apps.kernel.postgres import database
from apps.kernel.valkey import generation
from apps.keys.models import ApiKey
from apps.limits import counters, key_limits
from apps.limits.applied import AppliedLimit, AppliedLimits, PolicyLimits, apply_rule
from apps.limits.windows import WindowKind
from tests.gateway.admission.test_worst_case import DEAR, candidate
from tests.limits.limits import NOW, holds_of_key, rule
from tests.logs.entries import entry

USD = Decimal
KEY, ORGANIZATION, PROJECT = new_id(), new_id(), new_id()
CATALOG = Catalog(models={}, providers={}, generation="catalog-1")
WORST = WorstCase(10, USD("0.5"), True, USD("0.25"), USD("0.125"))
WHOLE = WorstCase(10, USD("0.5"), True, USD("0.5"), USD("0.5"))
HELD = ReservationResult(ReservationOutcome.HELD, hold=Hold("1", "w", 5, ("b",), "f"))


def policy(**fields: Any) -> Policy:
    """Return the policy of a key that nothing limits."""
    usual: dict[str, Any] = {
        "api_key_id": KEY,
        "project_id": PROJECT,
        "organization_id": ORGANIZATION,
        "plan": "free",
        "mode": "credits",
        "retention": "none",
        "outage_policy": "open",
        "hedging": False,
        "rules": (),
        "discounts": {},
        "own_credentials": {},
        "generation": "organization-1",
        "read_at": 0.0,
    }
    unset = ("limits", "requests_per_minute", "key_requests_per_minute", "concurrency", "cache_seconds")
    return Policy(**dict.fromkeys((*unset, "expires_at", "guardrails", "gone_reason")) | usual | fields)


def own_limit(
    monkeypatch: pytest.MonkeyPatch, usage_limit: str, a_day: str | None = None, before_today: str = "0"
) -> PolicyLimits:
    """Return the key's own limit: the tightest of its usage limit and its limit a day, in USD."""
    monkeypatch.setattr(key_limits, "_find_used_before", lambda *_: USD(before_today))
    key = ApiKey(id=KEY, usage_limit=USD(usage_limit), period="day" if a_day else "", period_limit=a_day and USD(a_day))
    return PolicyLimits((), key_limits.find_tightest(key, ORGANIZATION, datetime.fromtimestamp(NOW, UTC)))


class Store:
    """A store that gives prepared answers in their order, the last again and again, and notes the questions."""

    def __init__(self) -> None:
        self.answers: list[Any] = [HELD]
        self.asked: list[Any] = []

    def ask(self, *question: Any) -> Any:
        """Answer, or fail as a store that is away."""
        self.asked.append(question[0] if len(question) == 1 else question)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    store = Store()
    for name in ("reserve", "look", "extend"):
        monkeypatch.setattr(reservations, name, store.ask)
    monkeypatch.setattr(admission, "_RETRY_PAUSE", 0)
    monkeypatch.setattr(admission, "time", SimpleNamespace(time=lambda: NOW))
    yield store
    offline_accounts.forget_all()
    offline_admission.forget_all()


def admit(asker: Policy | None = None, worst: WorstCase = WORST, free: bool = False, **more: Any) -> Any:
    record = entry(id=UUID(int=7))
    return admission.admit(
        asker or policy(), CATALOG, "token", worst, record, "note", rate_family="chat", free=free, **more
    )


def refused(kind: type[ApiError], ask: Callable[..., Any] = admit, *args: Any, **fields: Any) -> tuple[str, str, Any]:
    """Return message, code and seconds until a retry of the error that is raised."""
    with pytest.raises(kind) as raised:
        ask(*args, **fields)
    assert type(raised.value) is kind
    return raised.value.message, raised.value.code, raised.value.retry_after


def test_the_store_is_asked_for_the_worst_case_under_all_of_the_callers_limits(
    store: Store, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.UPSTREAM_TOTAL_TIMEOUT = 90
    asker = policy(
        limits=own_limit(monkeypatch, "2.0000000019"), concurrency=4, requests_per_minute=5, key_requests_per_minute=6
    )
    assert admit(asker) == AdmissionGrant(None, HELD.hold, ())
    [request] = store.asked
    assert request == ReservationRequest(
        id=UUID(int=7),
        worker=request.worker,
        organization_id=ORGANIZATION,
        api_key_id=KEY,
        amount_nanos=500_000_000,
        part_nanos=250_000_000,
        least_nanos=125_000_000,
        from_credits=True,
        catalog_token="catalog-1",
        organization_token="organization-1",
        payload="note",
        rates=(RateLimit(f"organization:{ORGANIZATION}:chat", 5), RateLimit(f"key:{KEY}:chat", 6)),
        most_in_flight=4,
        flight_seconds=150,
        # Never more than the limit says.
        limits=holds_of_key(KEY, ORGANIZATION, 2_000_000_001),
        tokens=TokenRequest(prompt=10),
    )


def test_amounts_are_rounded_against_the_spender_and_are_one_where_a_limit_is_stated(store: Store) -> None:
    admit(worst=WorstCase(10, USD("0.0000000011"), False, USD("0.0000000001"), USD("0.0000000001")))
    admit(worst=WHOLE)
    assert [(one.amount_nanos, one.part_nanos, one.least_nanos, one.from_credits) for one in store.asked] == [
        (2, 1, 1, False),
        (500_000_000, 500_000_000, 500_000_000, True),
    ]
    assert [one.limits for one in store.asked] == [None, None]


def test_a_free_model_has_a_rate_of_its_own(store: Store, settings: Any) -> None:
    settings.FREE_MODELS_PER_MINUTE = 20
    admit(free=True)
    admit(free=False)
    settings.FREE_MODELS_PER_MINUTE = 0
    admit(free=True)
    assert [one.rates for one in store.asked] == [(RateLimit(f"free:{ORGANIZATION}", 20),), (), ()]


def test_tokens_are_asked_for_the_longest_answer_where_a_limit_counts_answers(store: Store) -> None:
    tariffs = (
        (candidate(DEAR), Tariff(USD(0), USD(0), 50, 40, 5)),
        (candidate(DEAR), Tariff(USD(0), USD(0), 90, 9, 8)),
    )
    for counts in ("output_tokens", "input_tokens"):
        limits = AppliedLimits.prepare([apply_rule(rule(counts), "", NOW)], NOW)
        for some in (tariffs, tariffs[:1]):
            admit(worst=WorstCase(10, USD(1), True, USD(1), USD(1), tariffs=some), limits=limits)
    none = TokenRequest(0, 0, 0, 10)
    assert [one.tokens for one in store.asked] == [TokenRequest(90, 40, 8, 10), TokenRequest(50, 40, 5, 10), none, none]


def test_a_route_without_a_rate_family_admits_nothing(store: Store) -> None:
    with pytest.raises(ValueError, match="no rate family"):
        admission.admit(policy(), CATALOG, "t", WORST, entry(), "note", rate_family=None, free=False)
    assert store.asked == []


def test_what_the_store_tells_of_balances_is_remembered_for_an_outage(store: Store) -> None:
    store.answers = [ReservationResult(ReservationOutcome.HELD, hold=HELD.hold, credits_left=5)]
    admit()
    assert offline_accounts.find(ORGANIZATION) == 5


def test_without_an_answer_this_process_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    distrusted: list[Any] = []
    monkeypatch.setattr(policies, "distrust", lambda token, asker: distrusted.append((token, asker)))
    asker, unchecked = policy(), OfflineHold(OfflineAccount(), ORGANIZATION, None, None)
    store.answers = [away := RedisConnectionError("away")]
    decided = [(HELD, unchecked), (answer("no_credits", left_nanos=0), None)]
    asked: list[Any] = []

    def decide(*question: Any) -> Any:
        asked.append(question)
        return decided[len(asked) - 1]

    monkeypatch.setattr(offline_admission, "decide", decide)
    assert admit(asker) == AdmissionGrant(None, unchecked, ())
    assert refused(PaymentRequired, admit, asker)[1] == "insufficient_credits"
    # Its policy is read again once that can be checked.
    assert distrusted == [("token", asker)] * 2
    assert [(question[0].id, question[1:]) for question in asked] == [(UUID(int=7), (asker, away))] * 2


@pytest.mark.parametrize(
    ("tokens", "is_current", "renewed"),
    [
        (("catalog-1", "organization-1"), True, []),
        (("catalog-2", "organization-1"), False, ["catalog-2"]),
        (("catalog-1", "organization-2"), False, ["token"]),
        # Without the store a refusal remains.
        (RedisConnectionError("away"), True, []),
    ],
)
def test_a_refusal_stands_while_policy_and_catalog_do(
    monkeypatch: pytest.MonkeyPatch, tokens: Any, is_current: bool, renewed: list[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(policies, "invalidate", lambda token, _: seen.append(token))
    monkeypatch.setattr(catalog_cache, "refresh", seen.append)

    def read(place: int) -> str:
        if isinstance(tokens, Exception):
            raise tokens
        return str(tokens[place])

    monkeypatch.setattr(generation, "check_token", lambda *_: read(0))
    monkeypatch.setattr(generation, "read_generation_token", lambda *_: read(1))
    assert admission.is_current(policy(), CATALOG, "token") is is_current
    assert seen == renewed


def answer(outcome: str, **fields: Any) -> ReservationResult:
    return ReservationResult(ReservationOutcome(outcome), **fields)


@pytest.mark.parametrize(
    ("own", "worst", "left", "limit", "rest"),
    [
        (("5",), WHOLE, 100_000_000, "usage limit of 5 USD", "up to 0.5 USD and 0.1 USD is left"),
        (("5",), WORST, 0, "usage limit of 5 USD", "at least 0.125 USD and 0 USD is left"),
        (("5",), WORST, -9, "usage limit of 5 USD", "at least 0.125 USD and 0 USD is left"),
        (
            ("9", "2", "6"),
            *(WORST, 1_000_000_000, "limit of 2 USD a day", "at least 0.125 USD and 1 USD is left"),
        ),
        (
            ("7", "2", "6"),
            *(WORST, 0, "usage limit of 7 USD", "at least 0.125 USD and 0 USD is left"),
        ),
    ],
)
def test_a_key_whose_limit_is_too_low_is_told_which_and_by_how_much(
    store: Store,
    own: tuple[str, ...],
    worst: WorstCase,
    left: int,
    limit: str,
    rest: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.answers = [answer("over_limit", left_nanos=left)]
    remedy = "; lower max_tokens or raise the key's limit" if worst is WHOLE else "; raise the key's limit"
    message = f"The key's {limit} is too low: this request needs {rest}{remedy}"
    asker = policy(limits=own_limit(monkeypatch, *own))
    assert refused(PaymentRequired, admit, asker, worst) == (message, "usage_limit_exceeded", None)
    # Other requests' holds may come back: it is asked a second time.
    assert len(store.asked) == 2


def test_refusals_say_what_to_do_and_are_asked_for_again_where_that_may_help(store: Store) -> None:
    store.answers = [answer("no_credits", left_nanos=200_000_000)]
    message = (
        "Insufficient credits: this request needs at least 0.125 USD and 0.2 USD is left; add credits under Billing"
    )
    assert refused(PaymentRequired) == (message, "insufficient_credits", None)
    store.answers = [answer("too_many")]
    message = "More than 3 requests at once; try again when one of them has been answered"
    assert refused(RateLimited, admit, policy(concurrency=3)) == (message, "concurrency_exceeded", 1)
    assert len(store.asked) == 4
    rate = RateLimitStatus(60, 0, 61.2, retry_after=1.26)
    store.answers = [answer("too_fast", rate=rate)]
    message = "More than 60 requests a minute; try again in 1.3 s"
    assert refused(RateLimited) == (message, "rate_limit_exceeded", 1.26)
    assert len(store.asked) == 5
    with pytest.raises(RateLimited) as raised:
        admit()
    assert raised.value.headers == [
        ("ratelimit-limit", "60"),
        ("ratelimit-remaining", "0"),
        ("ratelimit-reset", "62"),
    ]


@pytest.mark.parametrize("first", ["no_credits", "over_limit", "too_many"])
def test_a_hold_that_came_back_meanwhile_lets_the_request_in(store: Store, first: str) -> None:
    store.answers = [answer(first), HELD]
    assert admit().hold is HELD.hold
    assert len(store.asked) == 2


def limited(counts: str = "requests", amount: str = "10", **fields: Any) -> tuple[AppliedLimit, AppliedLimits]:
    is_optional = fields.pop("is_optional", False)
    one = apply_rule(rule(counts, amount, **fields), "", NOW, is_optional=is_optional)
    return one, AppliedLimits.prepare([one], NOW)


@pytest.mark.parametrize(
    ("counts", "window", "reached", "wait", "asked"),
    [
        # Until the window's end; where none of it can come back, it is asked once.
        ("requests", WindowKind.DAY, (10, 0, 1), "window", 1),
        ("requests", WindowKind.DAY, (9, 1, 1), "window", 2),
        # Requests in progress mostly use fewer tokens than they hold.
        ("tokens", WindowKind.DAY, (5, 4, 5), 1.0, 2),
        ("tokens", WindowKind.DAY, (5, 4, 6), "window", 2),
        ("tokens", WindowKind.DAY, (5, 0, 5), "window", 2),
        ("tokens", WindowKind.LIFETIME, (5, 4, 5), 1.0, 2),
        ("tokens", WindowKind.LIFETIME, (10, 0, 5), None, 1),
    ],
)
def test_a_limit_that_is_reached_says_when_to_come_again(
    store: Store, counts: str, window: WindowKind, reached: tuple[int, int, int], wait: Any, asked: int
) -> None:
    one, limits = limited(counts, window=window)
    store.answers = [answer("limit_reached", reached=ReachedLimit(0, *reached))]
    message, code, retry_after = refused(RateLimited, admit, limits=limits)
    used, held, needed = reached
    assert (
        f"does not cover this request: {used} used and {held} held by requests in progress, and it needs {needed}; "
        in (message)
    )
    assert message.startswith(f'The limit "ours" of the organization, 10 {counts} ')
    assert code == "limit_reached"
    assert retry_after == (one.window.ends_at or 0) - NOW if wait == "window" else retry_after == wait
    assert len(store.asked) == asked


@pytest.mark.parametrize(
    ("window", "reached", "is_final"),
    [
        # More than the whole limit: no window covers it.
        (WindowKind.DAY, (0, 0, 11), True),
        (WindowKind.DAY, (10, 0, 10), False),
        (WindowKind.LIFETIME, (10, 0, 1), True),
        (WindowKind.LIFETIME, (8, 1, 3), True),
        # The amount that a request in progress holds may come back.
        (WindowKind.LIFETIME, (8, 2, 2), False),
    ],
)
def test_a_limit_that_no_waiting_helps_tells_clients_not_to_try_again(
    store: Store, window: WindowKind, reached: tuple[int, int, int], is_final: bool
) -> None:
    _, limits = limited("tokens", window=window)
    store.answers = [answer("limit_reached", reached=ReachedLimit(0, *reached))]
    with pytest.raises(RateLimited) as raised:
        admit(limits=limits)
    assert raised.value.headers == ([("x-should-retry", "false")] if is_final else [])
    assert (raised.value.retry_after is None) == is_final


def test_a_limit_that_ends_in_a_moment_is_waited_for_a_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, limits = limited()
    assert one.window.ends_at is not None
    late = one.window.ends_at - 0.25
    monkeypatch.setattr(admission, "time", SimpleNamespace(time=lambda: late))
    store.answers = [answer("limit_reached", reached=ReachedLimit(0, 10, 0, 1))]
    assert refused(RateLimited, admit, limits=limits)[2] == 1.0


def test_a_limit_of_money_that_is_reached_is_a_payment_error(store: Store) -> None:
    _, limits = limited("usd", "0.5")
    store.answers = [answer("limit_reached", reached=ReachedLimit(0, 400_000_000, 0, 200_000_000))]
    message, code, wait = refused(PaymentRequired, admit, limits=limits)
    assert "0.4 used and 0 held by requests in progress, and it needs 0.2; " in message
    assert (code, wait) == ("limit_reached", None)


@pytest.mark.parametrize(("used", "is_noted"), [(10, True), (11, True), (9, False)])
def test_a_limit_of_a_provider_leaves_the_request_to_others(store: Store, used: int, is_noted: bool) -> None:
    one, limits = limited(scope="provider", provider="acme", is_optional=True)
    store.answers = [answer("limit_reached", reached=ReachedLimit(0, used, 1, 1))]
    asker = policy(limits=PolicyLimits([one.rule]))
    with pytest.raises(ProviderLimitReached) as raised:
        admit(asker, limits=limits)
    assert raised.value.limit is one
    assert asker.limits is not None
    assert asker.limits.used_up_at(NOW) == ([one.rule] if is_noted else [])


def test_a_limit_that_reroutes_says_where_no_other_model_can_answer(store: Store) -> None:
    one, limits = limited(reroutes_to=("small",))
    store.answers = [answer("limit_reached", reached=ReachedLimit(0, 10, 0, 1))]
    with pytest.raises(RerouteLimitReached) as raised:
        admit(limits=limits)
    assert (raised.value.limit, type(raised.value.refusal)) == (one, RateLimited)


def test_limits_that_only_warn_are_named(store: Store) -> None:
    first, second = (apply_rule(rule(refuses=False), "", NOW) for _ in range(2))
    store.answers = [answer("held", hold=HELD.hold, limits=(1,))]
    assert admit(limits=AppliedLimits.prepare([first, second], NOW)).warned == (second,)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Balances of which the store is given copies."""
    given: list[Any] = []
    monkeypatch.setattr(offline_accounts, "publish", lambda *balance: given.append(balance))
    monkeypatch.setattr(counters, "publish_buckets", given.append)
    monkeypatch.setattr(counters, "publish_again", lambda *counter: given.append(counter))
    return given


def test_balances_that_the_store_does_not_know_are_given_to_it(store: Store, published: list[Any]) -> None:
    store.answers = [answer("unknown", unknown="organization"), answer("unknown", unknown="key"), HELD]
    assert admit().hold is HELD.hold
    assert published == [("organization", ORGANIZATION), ("key", KEY)]
    store.asked.clear()
    store.answers = [answer("unknown", unknown="key")]
    assert refused(Gone)[0] == "This organization or API key no longer exists"
    assert len(store.asked) == 4


def test_counters_that_the_store_does_not_know_are_given_to_it(
    store: Store, published: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (apply_rule(rule(), "", NOW) for _ in range(2))
    limits = AppliedLimits.prepare([one, other], NOW)
    released: list[bool] = []
    monkeypatch.setattr(database, "release_connection", lambda: released.append(True))
    store.answers = [answer("unknown", unknown="limit", limits=(1,)), HELD]
    assert admit(limits=limits).hold is HELD.hold
    # A model may take minutes to answer.
    assert (published, released) == ([[other.buckets[0]]], [True])
    store.answers = [answer("unknown", unknown="limit", limits=(1,))]
    words = "The gateway cannot check limits right now; try again shortly"
    assert refused(Overloaded, admit, limits=limits) == (words, "overloaded", 2.0)

    def away(_: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(counters, "publish_buckets", away)
    assert refused(Overloaded, admit, limits=limits) == (words, "overloaded", 2.0)


@pytest.mark.parametrize(
    ("tokens", "renewed"),
    [
        (("catalog-2", "organization-1"), ["catalog-2"]),
        (("catalog-1", "organization-2"), ["token"]),
        (("catalog-2", "organization-2"), ["token", "catalog-2"]),
    ],
)
def test_what_has_changed_is_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, tokens: tuple[str, str], renewed: list[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(policies, "invalidate", lambda token, _: seen.append(token))
    monkeypatch.setattr(catalog_cache, "refresh", seen.append)
    store.answers = [answer("stale", generation_tokens=tokens)]
    assert admit() is None
    assert seen == renewed
    assert look() is False
    assert len(store.asked) == 2


def look(**fields: Any) -> bool:
    return admission.check(policy(**fields), CATALOG, "token", WORST, rate_family="chat", free=False)


def test_a_look_refuses_as_admission_does_and_lets_through_without_an_answer(store: Store) -> None:
    store.answers = [answer("allowed")]
    assert look(requests_per_minute=5) is True
    assert [one.rates for one in store.asked] == [(RateLimit(f"organization:{ORGANIZATION}:chat", 5),)]
    assert admission.check(policy(requests_per_minute=5), CATALOG, "t", WORST, rate_family=None, free=True) is True
    assert store.asked[1].rates == ()
    store.answers = [answer("too_many")]
    assert refused(RateLimited, look, concurrency=2)[1] == "concurrency_exceeded"
    store.answers = [RedisConnectionError("away")]
    assert look() is True


RESERVED = Hold("1", "w", 5, ("b",), "f")


def test_an_extension_asks_for_whole_nanos_and_gives_the_store_what_it_lost(store: Store, published: list[Any]) -> None:
    def lost(name: str) -> HoldExtension[Hold]:
        return HoldExtension(ExtensionOutcome.UNKNOWN, RESERVED, name)

    held = HoldExtension(ExtensionOutcome.HELD, RESERVED)
    one = apply_rule(rule(), "", NOW)
    store.answers = [lost(f"balance:organization:{ORGANIZATION}"), lost(f"balance:key:{KEY}"), held]
    extended = admission.extend(policy(), RESERVED, USD("0.0000000011"), USD("0.000000001"), USD("0.0000000001"))
    assert extended is held
    assert store.asked == [(RESERVED, 2, 1, 1)] * 3
    assert published == [("organization", ORGANIZATION), ("key", KEY)]
    published.clear()
    store.asked.clear()
    store.answers = [lost(one.counter)]
    assert admission.extend(policy(), RESERVED, USD(3), USD(2), USD(1)).growth is ExtensionOutcome.UNKNOWN
    assert published == [(one.counter_id, ORGANIZATION)] * 2
    assert len(store.asked) == 3


def test_a_request_that_holds_something_here_is_settled_here() -> None:
    account = OfflineAccount(in_flight=1)
    account.add(7, None)
    hold = OfflineHold(account, ORGANIZATION, None, None, amount_nanos=7)
    charge = Charge(ORGANIZATION, KEY, new_id(), USD("-0.000000002"), USD("0.000000002"))
    assert admission.settle(hold, charge) is None
    assert (account.spent, account.in_flight, hold.is_open) == (2, 0, False)
    account.add(-2, None)
    settled = admission.settle(Hold("1", "w", 5, ("balance:organization:x",), "f"), charge)
    assert settled is not None
    assert (settled.amount, settled.note) == (2, b'{"holds":["balance:organization:x"],"payload":"","flight":""}')
