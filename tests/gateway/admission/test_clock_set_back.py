"""A clock is set back by an hour, the store's or the machine's: that locks no caller out for so long, nothing waits."""

from __future__ import annotations

import time
from decimal import Decimal
from uuid import UUID

import pytest

from apps.billing import balances, reservations, worker_leases
from apps.billing.balances import Balance
from apps.billing.reservations import RateLimit, ReservationOutcome, ReservationRequest, flight_key
from apps.gateway.routing import circuit_breaker
from apps.gateway.routing.circuit_breaker import FIRST_PROBE_PAUSE, CircuitBreakers, OpenCircuit, OutcomeCounts
from apps.gateway.settlement import outbox
from apps.kernel.errors import RateLimited
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client, money_key
from apps.organizations.credentials import attempt_rate_limiter

HOUR = 3_600.0
FOX = "acme/fox-1"


@pytest.fixture
def organization() -> UUID:
    """An organization with 1 USD of credits, as the copy knows it."""
    identifier = new_id()
    balances.publish_or_raise([Balance("organization", identifier, Decimal(1), 1)])
    return identifier


def store_now() -> float:
    seconds, microseconds = client().time()
    return float(seconds) + float(microseconds) / 1e6


def request(organization: UUID, *rates: RateLimit, most: int | None = None) -> ReservationRequest:
    return ReservationRequest(
        id=new_id(),
        worker="worker-1",
        organization_id=organization,
        api_key_id=new_id(),
        amount_nanos=1,
        from_credits=True,
        catalog_token=generation.read_generation_token(generation.CATALOG),
        organization_token=generation.read_generation_token(generation.organization_scope(organization)),
        payload="{}",
        rates=rates,
        most_in_flight=most,
        flight_seconds=960,
    )


def test_a_bucket_kept_from_before_the_clock_was_set_back_is_an_empty_one_and_fills(organization: UUID) -> None:
    rate = RateLimit("acme", 60)
    client().set(money_key("rate:acme", 0), f"{store_now() + HOUR:.6f}")
    answer = reservations.reserve(request(organization, rate))
    assert answer.outcome is ReservationOutcome.TOO_FAST
    assert answer.rate is not None
    # A second for the next request, a minute for all sixty; not an hour.
    assert (answer.rate.per_minute, answer.rate.left) == (60, 0)
    assert answer.rate.retry_after == pytest.approx(1.0, abs=1e-4)
    assert answer.rate.reset == pytest.approx(60.0, abs=1e-4)
    kept = float(client().get(money_key("rate:acme", 0)) or 0)
    assert kept <= store_now() + 60
    # As if two seconds had gone by.
    client().set(money_key("rate:acme", 0), f"{kept - 2:.6f}")
    outcomes = [reservations.reserve(request(organization, rate)).outcome for _ in range(3)]
    assert outcomes == [ReservationOutcome.HELD, ReservationOutcome.HELD, ReservationOutcome.TOO_FAST]


def test_a_bucket_within_its_minute_is_left_as_it_is(organization: UUID) -> None:
    rate = RateLimit("acme", 60)
    client().set(money_key("rate:acme", 0), f"{store_now() + 30:.6f}")
    answer = reservations.reserve(request(organization, rate))
    assert answer.outcome is ReservationOutcome.HELD
    assert answer.rate is not None
    assert answer.rate.left in {29, 30}


def test_requests_in_flight_from_before_are_forgotten_after_a_lease_and_not_an_hour_later(organization: UUID) -> None:
    flight = flight_key(organization)
    client().zadd(flight, {"dead": store_now() + HOUR + 960, "alive": store_now() + 100})
    assert reservations.reserve(request(organization, most=2)).outcome is ReservationOutcome.TOO_MANY
    assert client().zscore(flight, "dead") <= store_now() + 960
    assert client().zscore(flight, "alive") <= store_now() + 100
    # As if the lease had gone by.
    client().zincrby(flight, -961, "dead")
    assert reservations.reserve(request(organization, most=2)).outcome is ReservationOutcome.HELD


def test_a_dead_worker_that_was_heard_of_in_the_future_is_found_a_lease_later() -> None:
    client().zadd(worker_leases.WORKERS[0], {"dead": store_now() + HOUR})
    worker_leases.send_heartbeat("alive")
    assert worker_leases.find_expired_workers(0) == []
    assert client().zscore(worker_leases.WORKERS[0], "dead") <= store_now()
    client().zincrby(worker_leases.WORKERS[0], -worker_leases.LEASE_SECONDS, "dead")
    assert worker_leases.find_expired_workers(0) == ["dead"]


def test_it_is_noticed_that_the_stores_clock_was_set() -> None:
    offset = 0.0
    clock = worker_leases.StoreClock(lambda: worker_leases.store_time() + offset)
    assert [clock.was_set(), clock.was_set()] == [False, False]
    offset = HOUR
    assert [clock.was_set(), clock.was_set()] == [True, False]
    offset = 0.0
    assert [clock.was_set(), clock.was_set()] == [True, False]


def test_sign_ins_of_the_future_count_for_a_minute_and_not_for_an_hour() -> None:
    rate = attempt_rate_limiter.AttemptLimit("test", 2)
    for _ in range(2):
        attempt_rate_limiter.count_attempt((rate, "olivia"))
    (name,) = client().scan_iter(match="*throttle:test:*")
    for one in client().zrange(name, 0, -1):
        client().zincrby(name, HOUR * 1000, one)
    with pytest.raises(RateLimited) as refused:
        attempt_rate_limiter.count_attempt((rate, "olivia"))
    assert refused.value.retry_after == pytest.approx(60.0, abs=0.5)
    # As if the minute had gone by.
    for one in client().zrange(name, 0, -1):
        client().zincrby(name, -60_001, one)
    attempt_rate_limiter.count_attempt((rate, "olivia"))


def test_an_open_circuit_is_tried_though_its_time_is_an_hour_away() -> None:
    now = 1_800_000_000.0
    circuit = OpenCircuit(next_probe=now + FIRST_PROBE_PAUSE, pause=FIRST_PROBE_PAUSE)
    assert [circuit.is_due(now), circuit.is_due(now + FIRST_PROBE_PAUSE)] == [False, True]
    assert circuit.is_due(now - HOUR)


def test_what_was_seen_in_the_future_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    board, now = CircuitBreakers(), time.time()
    board.record_failure(FOX)
    board.sync()
    assert board.stats(FOX).requests == 1
    monkeypatch.setattr(circuit_breaker.time, "time", lambda: now - HOUR)
    board.sync()
    assert board.stats(FOX).requests == 0
    board._forgiven[FOX] = (now, OutcomeCounts())
    board.sync()
    assert FOX not in board._forgiven


def test_a_record_of_a_vanished_settler_is_taken_over_whatever_the_store_thinks_how_long_it_had_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store's own count of idle time stands still for as long as its clock was set back by."""
    outbox.prepare()
    client().xadd(outbox.STREAMS[0], {"worker": "w", "record": "{}"})
    (taken,) = outbox.read_batch("dead", 10, 1)
    assert outbox.read_batch("alive", 10, 1) == []
    now = time.monotonic()
    monkeypatch.setattr(outbox.time, "monotonic", lambda: now + outbox.ABANDONED_AFTER / 1000 + 1)
    assert outbox.read_batch("alive", 10, 1) == [taken]
    # It belongs to this reader alone now.
    assert [one["consumer"] for one in client().xpending_range(outbox.STREAMS[0], outbox.GROUP, "-", "+", 10)] == [
        "alive"
    ]
    outbox.acknowledge([taken])
    assert outbox.depth() == (0, 0.0)
