"""Reservations and the copies of balances, against a real Valkey."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from redis.exceptions import RedisError

from apps.billing import balances, reservations, worker_leases
from apps.billing.balances import Balance
from apps.billing.reservations import (
    ExtensionOutcome,
    Note,
    ReservationOutcome,
    ReservationRequest,
    ReservationResult,
)
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from tests.limits.limits import holds_of_key

DOLLAR = 10**9


@pytest.fixture
def organization() -> UUID:
    """An organization with 1 USD of credits, as the copy knows it."""
    identifier = new_id()
    balances.publish_or_raise([Balance("organization", identifier, Decimal(1), 1)])
    return identifier


def request(
    organization: UUID, *, key: UUID | None = None, amount: int = DOLLAR, limit: int | None = None
) -> ReservationRequest:
    """Return a reservation of `amount` from the organization's credits under the current generations."""
    key = key or new_id()
    return ReservationRequest(
        id=new_id(),
        worker="worker-1",
        organization_id=organization,
        api_key_id=key,
        amount_nanos=amount,
        from_credits=True,
        limits=holds_of_key(key, organization, limit),
        catalog_token=generation.read_generation_token(generation.CATALOG),
        organization_token=generation.read_generation_token(generation.organization_scope(organization)),
        payload="{}",
    )


def held(scope: balances.Scope, identifier: UUID) -> str | None:
    """Return the amount held on a balance."""
    value: str | None = client().hget(balances.key(scope, identifier), "held")
    return value


def test_a_reservation_holds_the_amount_and_leaves_a_note(organization: UUID) -> None:
    one = request(organization, amount=400_000_000)
    assert reservations.reserve(one).outcome is ReservationOutcome.HELD
    assert held("organization", organization) == "400000000"
    note = reservations.notes_of("worker-1", 0)[one.id]
    assert (note.amount, note.holds, note.payload) == (
        "400000000",
        (balances.key("organization", organization),),
        "{}",
    )


def test_a_batch_is_released_once_whatever_is_named_twice(organization: UUID) -> None:
    first, second, third = [request(organization, amount=amount) for amount in (100_000_000, 20_000_000, 3_000_000)]
    for one in (first, second, third):
        assert reservations.reserve(one).outcome is ReservationOutcome.HELD
    batch = [("worker-1", first.id), ("worker-1", second.id), ("worker-1", first.id)]
    assert reservations.release(batch, 0) == 2
    assert held("organization", organization) == "3000000"
    assert list(reservations.notes_of("worker-1", 0)) == [third.id]


def test_amounts_of_a_batch_whose_sum_is_no_exact_number_are_released_exactly() -> None:
    name, ids, amount = "balance:organization:rich", [new_id() for _ in range(3)], 2**53 - 1
    for identifier in ids:
        note = msgspec.json.encode(Note(amount=str(amount), holds=(name,))).decode()
        client().hset(worker_leases.notes_key("worker-1", 0), str(identifier), note)
    client().hset(name, "held", 3 * amount + 5)
    assert reservations.release([("worker-1", identifier) for identifier in ids], 0) == 3
    assert client().hget(name, "held") == "5"


def test_a_note_of_the_version_before_is_read_summed_and_released(organization: UUID) -> None:
    counter, identifier = new_id(), new_id()
    credits, name = balances.key("organization", organization), balances.key("limit", counter, organization)
    # Its counts were last.
    text = (
        f'{{"amount":"5","written":"9","holds":["{credits}"],"payload":"{{}}","flight":"","counts":[["{name}",7,1]]}}'
    )
    client().hset(worker_leases.notes_key("worker-1", 0), str(identifier), text)
    worker_leases.send_heartbeat("worker-1")
    (note,) = reservations.notes_of("worker-1", 0).values()
    assert (list(note.held()), note.payload) == ([(credits, 5), (name, 16)], "{}")
    balances.publish_or_raise([Balance("limit", counter, Decimal(0), 0, 0, organization)])
    assert client().hget(name, "held") == "16"
    assert reservations.release([("worker-1", identifier)], 0) == 1
    assert client().hget(name, "held") == "0"


def test_a_note_that_cannot_be_read_leaves_the_others_of_its_batch_whole(organization: UUID) -> None:
    one, unreadable = request(organization, amount=100_000_000), new_id()
    assert reservations.reserve(one).outcome is ReservationOutcome.HELD
    client().hset(worker_leases.notes_key("worker-1", 0), str(unreadable), "no JSON")
    with pytest.raises(RedisError):
        reservations.release([("worker-1", one.id), ("worker-1", unreadable)], 0)
    assert held("organization", organization) == "100000000"
    assert reservations.release([("worker-1", one.id)], 0) == 1
    assert held("organization", organization) == "0"


def test_what_is_held_cannot_be_promised_again(organization: UUID) -> None:
    assert reservations.reserve(request(organization, amount=600_000_000)).outcome is ReservationOutcome.HELD
    answer = reservations.reserve(request(organization, amount=600_000_000))
    assert (answer.outcome, answer.left_nanos) == (ReservationOutcome.NO_CREDITS, 400_000_000)
    assert held("organization", organization) == "600000000"
    assert len(reservations.notes_of("worker-1", 0)) == 1


def test_a_key_over_its_limit_is_refused_and_nothing_is_held(organization: UUID) -> None:
    key = new_id()
    balances.publish_or_raise([Balance("key", key, Decimal("0.30"), 1)])
    answer = reservations.reserve(request(organization, key=key, amount=300_000_000, limit=500_000_000))
    assert (answer.outcome, answer.left_nanos) == (ReservationOutcome.OVER_LIMIT, 200_000_000)
    assert held("organization", organization) is None
    assert held("key", key) is None
    assert reservations.notes_of("worker-1", 0) == {}


def test_release_gives_back_once(organization: UUID) -> None:
    key = new_id()
    balances.publish_or_raise([Balance("key", key, Decimal(0), 1)])
    one = request(organization, key=key, amount=250_000_000, limit=DOLLAR)
    other = request(organization, key=key, amount=100_000_000, limit=DOLLAR)
    assert reservations.reserve(one).outcome is reservations.reserve(other).outcome is ReservationOutcome.HELD
    assert reservations.release([("worker-1", one.id)], 0) == 1
    assert reservations.release([("worker-1", one.id), ("worker-1", new_id())], 0) == 0
    assert held("organization", organization) == held("key", key) == "100000000"
    assert list(reservations.notes_of("worker-1", 0)) == [other.id]


def test_a_reservation_asked_for_twice_is_held_once(organization: UUID) -> None:
    one = request(organization, amount=250_000_000)
    assert reservations.reserve(one).outcome is reservations.reserve(one).outcome is ReservationOutcome.HELD
    assert held("organization", organization) == "250000000"
    assert reservations.release([("worker-1", one.id)], 0) == 1
    assert held("organization", organization) == "0"


def test_a_free_request_holds_nothing_and_still_leaves_its_note(organization: UUID) -> None:
    one = request(organization, amount=0)
    assert reservations.reserve(one).outcome is ReservationOutcome.HELD
    assert reservations.release([("worker-1", one.id)], 0) == 1
    assert held("organization", organization) == "0"


def test_a_changed_generation_is_told_and_nothing_is_held(organization: UUID) -> None:
    one = request(organization)
    generation.bump(generation.organization_scope(organization))
    answer = reservations.reserve(one)
    assert answer.outcome is ReservationOutcome.STALE
    assert answer.generation_tokens == (
        one.catalog_token,
        generation.read_generation_token(generation.organization_scope(organization)),
    )
    assert held("organization", organization) is None


def test_a_lost_generation_makes_every_copy_stale(organization: UUID) -> None:
    one = request(organization)
    client().delete(generation.keys_of(generation.CATALOG)[0])
    answer = reservations.reserve(one)
    assert answer.outcome is ReservationOutcome.STALE
    assert answer.generation_tokens is not None
    assert answer.generation_tokens[0] == generation.read_generation_token(generation.CATALOG) != one.catalog_token


def test_an_unknown_balance_is_asked_for() -> None:
    answer = reservations.reserve(request(new_id()))
    assert (answer.outcome, answer.unknown) == (ReservationOutcome.UNKNOWN, "organization")


def test_a_balance_only_moves_forward(organization: UUID) -> None:
    balances.publish_or_raise([Balance("organization", organization, Decimal("0.75"), 3)])
    balances.publish_or_raise([Balance("organization", organization, Decimal("0.90"), 2)])
    assert client().hmget(balances.key("organization", organization), "amount", "version") == ["750000000", "3"]


def test_balances_round_to_the_side_that_spends_less() -> None:
    assert Balance("organization", new_id(), Decimal("0.0000000019"), 1).nanos == 1
    assert Balance("key", new_id(), Decimal("0.0000000011"), 1).nanos == 2


def test_workers_that_fall_silent_are_dead_and_forgotten_when_nothing_is_left(organization: UUID) -> None:
    worker_leases.send_heartbeat("worker-1")
    worker_leases.send_heartbeat("worker-2")
    assert worker_leases.find_expired_workers(0) == []
    one = request(organization)
    reservations.reserve(one)
    worker_leases.expire_lease("worker-1")
    assert worker_leases.find_expired_workers(0) == ["worker-1"]
    assert worker_leases.remove_worker("worker-1", 0) is False
    reservations.release([("worker-1", one.id)], 0)
    assert worker_leases.remove_worker("worker-1", 0) is True
    assert worker_leases.find_expired_workers(0) == []


def test_the_notes_of_a_worker_that_died_before_its_first_heartbeat_are_found(organization: UUID) -> None:
    one = request(organization)
    reservations.reserve(one)
    assert worker_leases.find_expired_workers(0) == []
    (first,) = client().zrange(worker_leases.WORKERS[0], 0, -1, withscores=True)
    # One soon after does not make it live longer: that is for its heartbeat.
    reservations.reserve(request(organization, amount=0))
    assert client().zrange(worker_leases.WORKERS[0], 0, -1, withscores=True) == [first]
    client().zadd(worker_leases.WORKERS[0], {"worker-1": first[1] - worker_leases.LEASE_SECONDS})
    assert worker_leases.find_expired_workers(0) == ["worker-1"]
    assert next(iter(reservations.notes_of("worker-1", 0))) == one.id


def test_a_worker_whose_lease_has_run_out_has_one_again_by_its_next_reservation(organization: UUID) -> None:
    lapsed = worker_leases.store_time() - worker_leases.LEASE_SECONDS - 5
    client().zadd(worker_leases.WORKERS[0], {"worker-1": lapsed})
    assert reservations.look(request(organization)).outcome is ReservationOutcome.ALLOWED
    assert worker_leases.find_expired_workers(0) == ["worker-1"]
    assert reservations.reserve(request(organization)).outcome is ReservationOutcome.HELD
    assert worker_leases.find_expired_workers(0) == []
    assert client().zscore(worker_leases.WORKERS[0], "worker-1") == pytest.approx(
        lapsed + worker_leases.LEASE_SECONDS + 5, abs=60
    )


def test_one_that_was_forgotten_and_lives_on_is_known_again_by_its_next_reservation(organization: UUID) -> None:
    worker_leases.send_heartbeat("worker-1")
    assert worker_leases.remove_worker("worker-1", 0) is True
    assert client().zcard(worker_leases.WORKERS[0]) == 0
    reservations.reserve(request(organization))
    assert client().zrange(worker_leases.WORKERS[0], 0, -1) == ["worker-1"]
    assert worker_leases.remove_worker("worker-1", 0) is False
    assert client().zrange(worker_leases.WORKERS[0], 0, -1) == ["worker-1"]


def test_what_is_held_says_no_more_than_what_is_left(organization: UUID) -> None:
    key = new_id()
    balances.publish_or_raise([Balance("key", key, Decimal("0.25"), 1)])
    answer = reservations.reserve(request(organization, key=key, amount=100_000_000, limit=DOLLAR))
    assert answer == ReservationResult(
        ReservationOutcome.HELD, answer.hold, credits_left=900_000_000, key_left=650_000_000
    )
    looked = reservations.look(request(organization, amount=900_000_001))
    assert looked == ReservationResult(ReservationOutcome.NO_CREDITS, left_nanos=900_000_000)
    assert reservations.look(request(organization, key=key)).hold is None


def test_one_note_is_found_by_its_request(organization: UUID) -> None:
    one = request(organization, amount=7)
    assert reservations.find_note("worker-1", one.id, 0) is None
    reservations.reserve(one)
    note = reservations.find_note("worker-1", one.id, 0)
    assert note == reservations.notes_of("worker-1", 0)[one.id]
    assert note is not None
    assert (note.amount, note.payload) == ("7", "{}")


def test_nothing_to_release_asks_nothing() -> None:
    assert reservations.release([], 0) == 0


def test_a_reservation_is_extended_until_it_is_released(organization: UUID) -> None:
    one = request(organization, amount=100)
    hold = reservations.reserve(one).hold
    assert hold is not None
    more = reservations.extend(hold, 50, 50, 50)
    assert (more.growth, more.hold.amount_nanos, more.balance) == (ExtensionOutcome.HELD, 150, "")
    short = reservations.extend(more.hold, DOLLAR, DOLLAR, DOLLAR)
    assert (short.growth, short.hold, short.balance) == (
        ExtensionOutcome.SHORT,
        more.hold,
        balances.key("organization", organization),
    )
    assert held("organization", organization) == "150"
    reservations.release([("worker-1", one.id)], 0)
    gone = reservations.extend(more.hold, 50, 50, 50)
    assert (gone.growth, gone.hold, gone.balance) == (ExtensionOutcome.GONE, more.hold, "")
    assert held("organization", organization) == "0"


def test_a_lease_that_was_given_up_has_expired_long_ago() -> None:
    worker_leases.send_heartbeat("worker-1")
    worker_leases.send_heartbeat("worker-2")
    worker_leases.expire_lease("worker-1")
    assert client().zscore(worker_leases.WORKERS[0], "worker-1") == 0
    assert [worker_leases.is_expired(name, 0) for name in ("worker-1", "worker-2")] == [True, False]


def test_a_shard_is_asked_by_its_part_of_the_generation(organization: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    one, asked = request(organization), list[tuple[str, int]]()

    def part_of(token: str, shard: int) -> str:
        asked.append((token, shard))
        return token

    monkeypatch.setattr(generation, "shard_token", part_of)
    assert reservations.reserve(one).outcome is ReservationOutcome.HELD
    assert asked == []
    monkeypatch.setattr(reservations, "SHARD_COUNT", 2)
    assert reservations.reserve(one).outcome is ReservationOutcome.HELD
    assert asked == [(one.catalog_token, 0)]


def test_a_heartbeat_renews_a_lease_from_now_on() -> None:
    began = worker_leases.store_time()
    client().zadd(worker_leases.WORKERS[0], {"worker-1": 5})
    worker_leases.send_heartbeat("worker-1")
    assert client().zrange(worker_leases.WORKERS[0], 0, -1) == ["worker-1"]
    assert began <= float(client().zscore(worker_leases.WORKERS[0], "worker-1") or 0) <= worker_leases.store_time()
