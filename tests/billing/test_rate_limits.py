"""Rates and requests in flight: part of the one script that admits, against a real Valkey."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from msgspec.structs import replace

from apps.billing import balances, reservations
from apps.billing.balances import Balance
from apps.billing.reservations import RateLimit, ReservationOutcome, ReservationRequest, flight_key
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client, money_key


@pytest.fixture
def organization() -> UUID:
    """An organization with 1 USD of credits, as the copy knows it."""
    identifier = new_id()
    balances.publish_or_raise([Balance("organization", identifier, Decimal(1), 1)])
    return identifier


def request(organization: UUID, *rates: RateLimit, most: int | None = None, amount: int = 1) -> ReservationRequest:
    """Return a reservation that counts against the rates."""
    return ReservationRequest(
        id=new_id(),
        worker="worker-1",
        organization_id=organization,
        api_key_id=new_id(),
        amount_nanos=amount,
        from_credits=True,
        catalog_token=generation.read_generation_token(generation.CATALOG),
        organization_token=generation.read_generation_token(generation.organization_scope(organization)),
        payload="{}",
        rates=rates,
        most_in_flight=most,
    )


def test_a_minutes_requests_are_let_in_at_once_and_no_more(organization: UUID) -> None:
    rate = RateLimit("acme", 3)
    answers = [reservations.reserve(request(organization, rate)) for _ in range(4)]
    assert [answer.outcome for answer in answers] == [ReservationOutcome.HELD] * 3 + [ReservationOutcome.TOO_FAST]
    assert [answer.rate.left for answer in answers if answer.rate] == [2, 1, 0, 0]
    refused = answers[3].rate
    assert refused is not None
    assert refused.per_minute == 3
    assert 19 < refused.retry_after <= 20
    assert 59 < refused.reset <= 60


def test_a_refusal_holds_nothing_and_uses_nothing_up(organization: UUID) -> None:
    rate = RateLimit("acme", 1)
    reservations.reserve(request(organization, rate, amount=5))
    full = client().get(money_key("rate:acme", 0))
    refused = request(organization, rate, RateLimit("other", 10), amount=5)
    assert reservations.reserve(refused).outcome is ReservationOutcome.TOO_FAST
    assert client().get(money_key("rate:acme", 0)) == full
    assert client().get(money_key("rate:other", 0)) is None
    assert client().hget(balances.key("organization", organization), "held") == "5"
    assert refused.id not in reservations.notes_of("worker-1", 0)


def test_a_bucket_fills_evenly(organization: UUID) -> None:
    rate = RateLimit("acme", 60)
    for _ in range(60):
        reservations.reserve(request(organization, rate))
    assert reservations.reserve(request(organization, rate)).outcome is ReservationOutcome.TOO_FAST
    # As if two seconds had gone by.
    full = float(client().get(money_key("rate:acme", 0)) or 0)
    client().set(money_key("rate:acme", 0), full - 2)
    outcomes = [reservations.reserve(request(organization, rate)).outcome for _ in range(3)]
    assert outcomes == [ReservationOutcome.HELD, ReservationOutcome.HELD, ReservationOutcome.TOO_FAST]


def test_the_tightest_rate_is_told(organization: UUID) -> None:
    answer = reservations.reserve(
        request(organization, RateLimit("acme", 100), RateLimit("key", 5), RateLimit("free", 20))
    )
    assert answer.rate is not None
    assert (answer.rate.per_minute, answer.rate.left) == (5, 4)
    assert 11 < answer.rate.reset <= 12


def test_what_credits_refuse_uses_up_no_rate(organization: UUID) -> None:
    refused = request(organization, RateLimit("acme", 5), most=5, amount=2 * 10**9)
    assert reservations.reserve(refused).outcome is ReservationOutcome.NO_CREDITS
    assert client().get(money_key("rate:acme", 0)) is None
    assert client().zcard(flight_key(organization)) == 0


def test_so_many_at_a_time(organization: UUID) -> None:
    first, second = request(organization, most=2), request(organization, most=2)
    assert reservations.reserve(first).outcome is ReservationOutcome.HELD
    assert reservations.reserve(second).outcome is ReservationOutcome.HELD
    third = request(organization, most=2)
    assert reservations.reserve(third).outcome is ReservationOutcome.TOO_MANY
    assert third.id not in reservations.notes_of("worker-1", 0)
    reservations.release([("worker-1", first.id)], 0)
    assert reservations.reserve(third).outcome is ReservationOutcome.HELD


def test_one_in_flight_that_nobody_took_out_is_forgotten_after_its_lease(organization: UUID) -> None:
    lost = replace(request(organization, most=1), flight_seconds=100)
    assert reservations.reserve(lost).outcome is ReservationOutcome.HELD
    (entry,) = client().zrange(flight_key(organization), 0, -1, withscores=True)
    client().zadd(flight_key(organization), {entry[0]: entry[1] - 101})
    assert reservations.reserve(request(organization, most=1)).outcome is ReservationOutcome.HELD


def test_a_request_that_asks_again_after_a_loss_is_told_words_that_never_were_before(organization: UUID) -> None:
    asked = request(organization)
    told = []
    for _ in range(2):
        client().delete(
            generation.keys_of(generation.CATALOG)[0],
            generation.keys_of(generation.organization_scope(organization))[0],
        )
        answer = reservations.reserve(asked)
        assert (answer.outcome, answer.generation_tokens is not None) == (ReservationOutcome.STALE, True)
        told.append(answer.generation_tokens)
    assert told[0] != told[1]
