"""Decisions of this process in place of a silent store: amounts, rates and refusals, exact and without any store."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from structlog.testing import capture_logs

from apps.billing import reservations
from apps.billing.ledger import Charge
from apps.billing.reservations import (
    ExtensionOutcome,
    Hold,
    RateLimit,
    RateLimitStatus,
    ReservationOutcome,
    ReservationRequest,
    ReservationResult,
)
from apps.gateway.admission import offline_accounts, offline_admission
from apps.gateway.admission.offline_accounts import OfflineHold
from apps.gateway.admission.offline_admission import (
    OUTAGE,
    StoreOutage,
    decide,
    extend,
    extend_reserved,
    on_heartbeat,
)
from apps.gateway.metrics import OFFLINE_ALLOWANCE_USED, OFFLINE_DECISIONS, STORE_SILENT, UNRESERVED
from apps.kernel.errors import Overloaded
from apps.kernel.ids import new_id
from tests.gateway.admission.test_store_answers import KEY, ORGANIZATION, policy
from tests.limits.limits import holds_of_key

AWAY = RedisConnectionError("away")


class Clock:
    """The monotonic clock of offline admission and its accounts."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """Return the present moment."""
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Clock]:
    """A process that knows nothing yet, whose allowance is 1,000 nanos, and its clock."""
    settings.OFFLINE_ALLOWANCE_USD = Decimal("0.000001")
    clock = Clock()
    for module in (offline_admission, offline_accounts):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(offline_accounts, "_total", 0)
    offline_accounts.forget_all()
    offline_admission.forget_all()
    yield clock
    offline_accounts.forget_all()
    offline_admission.forget_all()


@pytest.fixture(autouse=True)
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, UUID]]:
    """The balances that the database was asked for; it knows none."""
    asked: list[tuple[str, UUID]] = []
    monkeypatch.setattr(offline_accounts, "find_in_database", lambda *balance: asked.append(balance))
    return asked


def request(amount: int = 100, **fields: Any) -> ReservationRequest:
    usual: dict[str, Any] = {
        "id": new_id(),
        "worker": "worker-1",
        "organization_id": ORGANIZATION,
        "api_key_id": KEY,
        "amount_nanos": amount,
        "from_credits": True,
        "catalog_token": "c",
        "organization_token": "o",
        "payload": "",
    }
    limits = holds_of_key(KEY, ORGANIZATION, fields.pop("key_limit", None))
    return ReservationRequest(**usual | {"limits": limits} | fields)


def know(credits: int | None = None, key_left: int | None = None, limit: int | None = None) -> None:
    """Let the store have told the remaining amounts, before it fell silent."""
    told = ReservationResult(ReservationOutcome.HELD, credits_left=credits, key_left=key_left)
    offline_accounts.remember(request(key_limit=limit), told)


def granted(asked: ReservationRequest) -> int:
    """Return the amount that a request is let in with."""
    answer, hold = decide(asked, policy(), AWAY)
    assert answer.outcome is ReservationOutcome.HELD, answer
    assert hold is not None
    return hold.amount_nanos


def refusal(asked: ReservationRequest, **fields: Any) -> str:
    """Return the message with which a request is refused because nothing is certain."""
    with pytest.raises(Overloaded) as raised:
        decide(asked, policy(**fields), AWAY)
    assert (raised.value.retry_after, raised.value.__cause__) == (2.0, AWAY)
    return raised.value.message


UNKNOWN = "The gateway cannot check credits right now; try again shortly"
USED_UP = "The gateway cannot check credits right now, and what it may serve unchecked is used up; try again shortly"


@pytest.mark.parametrize(
    ("credits", "amounts", "expected"),
    [
        (5_000, {"amount": 100}, 100),
        # A useful part, but no less than the least of it.
        (5_000, {"amount": 100, "part_nanos": 60, "least_nanos": 20}, 60),
        (5_000, {"amount": 100, "part_nanos": 10, "least_nanos": 20}, 20),
        (5_000, {"amount": 100, "least_nanos": 20}, 20),
        (5_000, {"amount": 100, "part_nanos": 400, "least_nanos": 20}, 100),
        # As much as the balance and the allowance have.
        (50, {"amount": 100, "part_nanos": 60, "least_nanos": 20}, 50),
        (20, {"amount": 100, "part_nanos": 60, "least_nanos": 20}, 20),
        (1, {"amount": 1}, 1),
        (5_000, {"amount": 9_000, "part_nanos": 2_000, "least_nanos": 1_000}, 1_000),
        (5_000, {"amount": 100, "least_nanos": 0}, 0),
        # Own accounts and free models need neither.
        (None, {"amount": 9_000, "from_credits": False}, 0),
    ],
)
def test_a_request_is_let_in_with_as_much_as_is_certain(
    credits: int | None, amounts: dict[str, Any], expected: int, looked_up: list[Any]
) -> None:
    know(credits)
    before = UNRESERVED._value.get()
    assert granted(request(**amounts)) == expected
    # The known balance covers the least of it: the database is not asked.
    assert looked_up == []
    account = offline_admission._accounts[ORGANIZATION]
    assert (account.spent, account.in_flight, OUTAGE.admitted, OUTAGE.refused) == (expected, 1, 1, 0)
    assert OFFLINE_ALLOWANCE_USED._value.get() == pytest.approx(expected / 1e9)
    assert UNRESERVED._value.get() == before + 1


@pytest.mark.parametrize(
    ("credits", "asked", "left"),
    [
        (99, {}, 99),
        (19, {"least_nanos": 20, "part_nanos": 30}, 19),
        # Nothing is left, and a request that costs nothing from credits would still need some.
        (0, {"amount": 0}, 0),
        (-5, {"amount": 0}, -5),
    ],
)
def test_credits_that_do_not_cover_the_least_refuse(
    credits: int, asked: dict[str, Any], left: int, looked_up: list[Any]
) -> None:
    know(credits)
    answer, hold = decide(request(**asked), policy(), AWAY)
    assert (answer, hold) == (ReservationResult(ReservationOutcome.NO_CREDITS, left_nanos=left), None)
    # Before it refuses, it looks whether there is more by now.
    assert looked_up == [("organization", ORGANIZATION)]
    assert (offline_admission._accounts[ORGANIZATION].spent, OUTAGE.refused) == (0, 1)


def test_a_key_has_its_limit_beside_the_credits(looked_up: list[Any]) -> None:
    know(5_000, key_left=100, limit=400)
    assert offline_accounts.find(KEY) == 300
    assert granted(request(60, key_limit=400)) == 60
    assert looked_up == []
    # 40 are left of the key's limit: all that is let through counts.
    assert granted(request(60, key_limit=400, part_nanos=50, least_nanos=30)) == 40
    assert offline_admission._accounts[ORGANIZATION].keys[KEY] == 100
    assert refusal(request(60, key_limit=400, least_nanos=1)) == USED_UP
    assert looked_up == [("key", KEY)]
    # Another limit leaves another rest.
    answer, _ = decide(request(60, key_limit=350), policy(), AWAY)
    assert answer == ReservationResult(ReservationOutcome.OVER_LIMIT, left_nanos=50)


def test_a_balance_that_is_not_known_serves_no_request(looked_up: list[Any]) -> None:
    assert refusal(request()) == UNKNOWN
    assert looked_up == [("organization", ORGANIZATION)]
    know(5_000)
    assert refusal(request(key_limit=400)) == UNKNOWN
    assert looked_up[1:] == [("key", KEY)]


def test_the_allowance_is_one_for_all_requests_of_an_organization() -> None:
    know(5_000)
    assert granted(request(600)) == 600
    assert refusal(request(401)) == USED_UP
    assert granted(request(400)) == 400
    assert refusal(request(1)) == USED_UP


def test_a_closed_organization_is_not_served() -> None:
    know(5_000)
    message = "The gateway cannot check credits and limits right now, and the organization's outagePolicy is `closed`; "
    assert refusal(request(), outage_policy="closed") == f"{message}try again shortly"
    assert ORGANIZATION not in offline_admission._accounts


def test_there_is_an_end_to_the_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    know(5_000)
    monkeypatch.setattr(offline_admission, "_MAX_ACCOUNTS", 1)
    assert granted(request()) == 100
    assert granted(request()) == 100
    assert refusal(request(organization_id=new_id(), from_credits=False)) == UNKNOWN


def test_rates_hold_in_this_process(clock: Clock) -> None:
    know(5_000)
    rates = (RateLimit("bucket", 2),)
    assert [granted(request(1, rates=rates)) for _ in range(2)] == [1, 1]
    clock.now += 10
    answer, hold = decide(request(1, rates=rates), policy(), AWAY)
    assert hold is None
    assert answer == ReservationResult(
        ReservationOutcome.TOO_FAST, rate=RateLimitStatus(2, 0, pytest.approx(50), retry_after=pytest.approx(20))
    )
    clock.now += 20
    assert granted(request(1, rates=rates)) == 1
    # After a long pause there are a minute's requests, and no more.
    clock.now += 600
    assert [granted(request(1, rates=rates)) for _ in range(2)] == [1, 1]
    assert decide(request(1, rates=rates), policy(), AWAY)[0].outcome is ReservationOutcome.TOO_FAST


def test_a_rate_of_one_holds_from_the_machines_first_moment_on(clock: Clock) -> None:
    know(5_000)
    clock.now = 0.0
    for name, per_minute in (("one", 1), ("two", 2)):
        rates = (RateLimit(name, per_minute),)
        assert [granted(request(1, rates=rates)) for _ in range(per_minute)] == [1] * per_minute
        answer, _ = decide(request(1, rates=rates), policy(), AWAY)
        assert answer.rate == RateLimitStatus(per_minute, 0, 60.0, retry_after=60.0 / per_minute)


def test_requests_at_a_time_hold_in_this_process() -> None:
    know(5_000)
    _, hold = decide(request(most_in_flight=1), policy(), AWAY)
    assert decide(request(most_in_flight=1), policy(), AWAY)[0] == ReservationResult(ReservationOutcome.TOO_MANY)
    assert hold is not None
    hold.settle(Charge(ORGANIZATION, KEY, new_id(), Decimal(0), Decimal(0)))
    assert granted(request(most_in_flight=1)) == 100
    assert granted(request(most_in_flight=None)) == 100


@pytest.mark.parametrize(
    ("limit", "charged", "spent", "of_key"),
    [
        (None, ("-0.00000004", "0.00000004", "0.00000001"), 50, 0),
        (1_000, ("-0.00000004", "0.00000004", "0.00000001"), 50, 50),
        # A client's own account is paid, so that only the key's usage grows.
        (1_000, ("0", "0.0000000601", "0"), 61, 61),
        (None, ("0", "0.00000006", "0"), 0, 0),
    ],
)
def test_a_request_that_has_ended_counts_with_what_it_cost(
    limit: int | None, charged: tuple[str, str, str], spent: int, of_key: int
) -> None:
    know(5_000, key_left=900, limit=1_000)
    _, hold = decide(request(key_limit=limit), policy(), AWAY)
    assert hold is not None
    credits, usage, storage = map(Decimal, charged)
    charge = Charge(ORGANIZATION, KEY, new_id(), credits, usage, storage)
    for _ in range(2):
        hold.settle(charge)
        account = offline_admission._accounts[ORGANIZATION]
        assert (account.spent, account.in_flight, account.keys[KEY]) == (spent, 0, of_key)


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ((100, 60, 20), 60),
        ((100, 10, 20), 20),
        ((100, 200, 20), 100),
        ((5_000, 2_000, 20), 900),
        ((5_000, 2_000, 900), 900),
        ((5_000, 2_000, 901), 0),
    ],
)
def test_a_request_that_was_let_in_unchecked_may_have_more(asked: tuple[int, int, int], more: int) -> None:
    know(5_000)
    _, hold = decide(request(), policy(), AWAY)
    assert hold is not None
    extended = extend(hold, *asked)
    assert extended.growth is (ExtensionOutcome.HELD if more else ExtensionOutcome.SHORT)
    assert extended.hold is hold
    assert (hold.amount_nanos, hold.account.spent) == (100 + more, 100 + more)


CREDITS, USAGE = f"balance:organization:{ORGANIZATION}", f"balance:key:{KEY}"


@pytest.mark.parametrize(
    ("credits", "balances", "limit", "asked", "more"),
    [
        (90, (CREDITS,), None, (100, 60, 20), 60),
        (40, (CREDITS,), None, (100, 60, 20), 40),
        (40, (CREDITS,), None, (100, 60, 40), 40),
        (40, (CREDITS,), None, (100, 60, 41), 0),
        # 30 are left of the key's limit, 1,000 of the allowance.
        (40, (CREDITS, USAGE), 400, (100, 60, 20), 30),
        (40, (USAGE,), 400, (100, 60, 31), 0),
        (40, (), None, (2_000, 2_000, 41), 1_000),
        (None, (CREDITS,), None, (1, 1, 1), 0),
    ],
)
def test_a_reservation_may_have_more_beside_what_the_store_holds(
    credits: int | None, balances: tuple[str, ...], limit: int | None, asked: tuple[int, int, int], more: int
) -> None:
    know(credits, key_left=30, limit=400)
    hold = Hold("1", "w", 7, balances, "f", limits=holds_of_key(KEY, ORGANIZATION, limit))
    extended = extend_reserved(policy(), hold, *asked, AWAY)
    assert extended.growth is (ExtensionOutcome.HELD if more else ExtensionOutcome.SHORT)
    assert extended.hold.amount_nanos == 7 + more
    account = offline_admission._accounts[ORGANIZATION]
    assert (account.spent, account.keys[KEY]) == (more, 0 if limit is None else more)
    assert OUTAGE.began_at == 1_000.0
    closed = extend_reserved(policy(outage_policy="closed"), hold, 1, 1, 1, AWAY)
    assert (closed.growth, account.spent) == (ExtensionOutcome.SHORT, more)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The reservations that were released in the store."""
    given: list[Any] = []
    monkeypatch.setattr(reservations, "release", lambda pairs, shard: given.append((pairs, shard)))
    return given


def test_what_may_have_been_reserved_for_a_refused_request_is_released_once_the_store_is_done(
    clock: Clock, released: list[Any]
) -> None:
    know(50)
    maybe, said_no, later = request(), request(), request()
    decide(maybe, policy(), AWAY)
    decide(said_no, policy(), ReadOnlyError("no"))
    clock.now += 1
    decide(later, policy(), AWAY)
    clock.now += 1.9
    on_heartbeat()
    assert released == []
    clock.now += 0.1
    on_heartbeat()
    assert released == [([("worker-1", maybe.id)], 0)]
    clock.now += 1
    on_heartbeat()
    on_heartbeat()
    assert released[1:] == [([("worker-1", later.id)], 0)]


def test_reservations_of_refused_requests_are_released_by_the_hundreds(clock: Clock, released: list[Any]) -> None:
    know(50)
    for _ in range(501):
        decide(request(), policy(), AWAY)
    clock.now += 3.0
    on_heartbeat()
    assert [(len(pairs), shard) for pairs, shard in released] == [(500, 0), (1, 0)]


def test_an_outage_is_told_at_its_beginning_and_its_end(clock: Clock) -> None:
    know(150)
    for _ in range(2):
        with capture_logs() as logs:
            counted = [OFFLINE_DECISIONS.labels("unreachable", one)._value.get() for one in ("admitted", "allowance")]
            assert granted(request()) == 100
            assert (refusal(request()), STORE_SILENT._value.get()) == (USED_UP, 1)
            for one, before in zip(("admitted", "allowance"), counted, strict=True):
                assert OFFLINE_DECISIONS.labels("unreachable", one)._value.get() == before + 1
            on_heartbeat()
            assert STORE_SILENT._value.get() == 1
            clock.now += 5.04
            on_heartbeat()
            assert STORE_SILENT._value.get() == 0
            on_heartbeat()
        assert logs == [
            {"event": "store.outage_began", "log_level": "error", "reason": "unreachable"},
            {"event": "store.outage_ended", "log_level": "info", "seconds": 5.0, "admitted": 1, "refused": 1},
        ]
        offline_admission._forget({})


def test_rates_begin_again_after_an_outage(clock: Clock) -> None:
    rates = (RateLimit("bucket", 1),)
    _, hold = decide(request(from_credits=False, rates=rates), policy(), AWAY)
    assert hold is not None
    hold.settle(Charge(ORGANIZATION, KEY, new_id(), Decimal(0), Decimal(0)))
    assert offline_admission._full_at == {"bucket": 1_060.0}
    on_heartbeat()
    on_heartbeat()
    clock.now += 30
    on_heartbeat()
    assert (offline_admission._full_at, offline_admission._accounts) == ({}, {})


def test_without_an_outage_it_has_long_been_over(clock: Clock) -> None:
    outage = StoreOutage()
    assert (outage.began_at, outage.admitted, outage.refused) == (None, 0, 0)
    clock.now = 30.0
    assert (outage.is_over_for(30.0), outage.is_over_for(30.1)) == (True, False)
    outage.record_failure("timeout")
    outage.record_heartbeat()
    outage.record_heartbeat()
    assert (outage.began_at, outage.ended_at) == (None, 30.0)
    # After it was forgotten, a failure of before is no reason to wait for another heartbeat.
    outage.record_failure("timeout")
    outage.forget()
    outage.began_at = 20.0
    outage.record_heartbeat()
    assert outage.began_at is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AWAY, "unreachable"),
        (RedisTimeoutError("late"), "timeout"),
        (OutOfMemoryError("used memory > 'maxmemory'"), "oom"),
        (ReadOnlyError("You can't write against a read only replica."), "readonly"),
        (BusyLoadingError("Redis is loading the dataset in memory"), "loading"),
        (ResponseError("MISCONF Errors writing to the AOF file"), "misconf"),
        (ResponseError("WRONGTYPE Operation against a key"), "refused"),
    ],
)
def test_why_the_store_gave_no_answer(error: RedisError, reason: str) -> None:
    assert offline_admission.outage_reason(error) == reason


def test_an_outage_counts_until_its_records_are_settled(clock: Clock) -> None:
    know(5_000)
    done, open_one = (
        decide(request(100, organization_id=one), policy(), AWAY)[1] for one in (ORGANIZATION, ORGANIZATION)
    )
    other = new_id()
    offline_accounts.remember(
        request(organization_id=other), ReservationResult(ReservationOutcome.HELD, credits_left=5_000)
    )
    _, ended = decide(request(50, organization_id=other), policy(), AWAY)
    assert done is not None
    assert open_one is not None
    assert ended is not None
    paid = Charge(ORGANIZATION, KEY, new_id(), Decimal("-0.00000001"), Decimal(0))
    done.settle(paid)
    ended.settle(paid)
    assert OUTAGE.began_at == 1_000.0
    # Something failed since the heartbeat before.
    on_heartbeat()
    assert OUTAGE.began_at is not None
    clock.now += 5
    on_heartbeat()
    assert (OUTAGE.began_at, OUTAGE.ended_at) == (None, 1_005.0)
    clock.now += 29.9
    on_heartbeat()
    assert [one.spent for one in offline_admission._accounts.values()] == [110, 10]
    clock.now += 0.1
    on_heartbeat()
    # An account with a request in progress is kept.
    assert {one: account.spent for one, account in offline_admission._accounts.items()} == {ORGANIZATION: 110}
    assert OFFLINE_ALLOWANCE_USED._value.get() == pytest.approx(110 / 1e9)


def test_a_balance_that_the_store_tells_is_remembered() -> None:
    offline_accounts.remember(request(), ReservationResult(ReservationOutcome.NO_CREDITS, left_nanos=7))
    assert (offline_accounts.find(ORGANIZATION), offline_accounts.find(KEY)) == (7, None)
    over = ReservationResult(ReservationOutcome.OVER_LIMIT, left_nanos=-3)
    offline_accounts.remember(request(key_limit=10), over)
    assert (offline_accounts.find(ORGANIZATION), offline_accounts.find(KEY)) == (7, 13)
    held = ReservationResult(ReservationOutcome.HELD, credits_left=0, key_left=0)
    offline_accounts.remember(request(key_limit=10), held)
    assert (offline_accounts.find(ORGANIZATION), offline_accounts.find(KEY)) == (0, 10)
    # Without a limit the key has no balance; another refusal says nothing of any.
    offline_accounts.remember(request(), ReservationResult(ReservationOutcome.HELD, credits_left=4, key_left=1))
    offline_accounts.remember(request(), ReservationResult(ReservationOutcome.TOO_MANY))
    assert (offline_accounts.find(ORGANIZATION), offline_accounts.find(KEY)) == (4, 10)


def test_the_balance_that_was_told_last_is_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_accounts, "_MAX_BALANCES", 2)
    first, second, third = new_id(), new_id(), new_id()
    for identifier in (first, second, first, third):
        told = ReservationResult(ReservationOutcome.HELD, credits_left=1)
        offline_accounts.remember(request(organization_id=identifier), told)
    assert [offline_accounts.find(one) for one in (first, second, third)] == [1, None, 1]


def test_the_balances_of_an_unchecked_request() -> None:
    account = offline_accounts.OfflineAccount(spent=9)
    account.keys[KEY] = 4
    both = OfflineHold(account, ORGANIZATION, KEY, 50)
    assert (both.balances, both.balance_of("organization"), both.balance_of("key")) == (
        (ORGANIZATION, KEY),
        (ORGANIZATION, None, 9),
        (KEY, 50, 4),
    )
    none = OfflineHold(account, None, None, None)
    assert (none.balances, none.balance_of("organization"), none.balance_of("key")) == (
        (),
        (None, None, 9),
        (None, None, 0),
    )
