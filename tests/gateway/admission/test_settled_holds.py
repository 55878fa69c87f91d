"""The hold of an answered request until it is settled: its actual cost, not the worst case."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from apps.billing import balances, reservations, worker_leases
from apps.billing.balances import Balance
from apps.billing.ledger import Charge
from apps.billing.reservations import Hold, ReservationOutcome, ReservationRequest, flight_key
from apps.gateway.settlement import outbox, settle
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from tests.limits.limits import holds_of_key

ORGANIZATION, KEY = new_id(), new_id()


@pytest.fixture(autouse=True)
def known() -> None:
    """A dollar of credits, nothing used of the key, and a stream with its group."""
    balances.publish_or_raise(
        [Balance("organization", ORGANIZATION, Decimal(1), 1), Balance("key", KEY, Decimal(0), 1)]
    )
    outbox.prepare()


def reserved(nanos: int, *, limit: int | None = 10**9) -> Hold:
    """Reserve from credits, and under the key's limit if there is one, as the only request in flight that may be."""
    answer = reservations.reserve(
        ReservationRequest(
            id=new_id(),
            worker="worker-1",
            organization_id=ORGANIZATION,
            api_key_id=KEY,
            amount_nanos=nanos,
            from_credits=True,
            limits=holds_of_key(KEY, ORGANIZATION, limit),
            catalog_token=generation.read_generation_token(generation.CATALOG),
            organization_token=generation.read_generation_token(generation.organization_scope(ORGANIZATION)),
            payload='{"n":1}',
            most_in_flight=1,
        )
    )
    assert answer.outcome is ReservationOutcome.HELD
    assert answer.hold is not None
    return answer.hold


def charge(credits: str, usage: str, storage: str = "0") -> Charge:
    return Charge(ORGANIZATION, KEY, new_id(), -Decimal(credits), Decimal(usage), Decimal(storage))


def held() -> tuple[int, int]:
    """Return the amounts held on the credits and on the key's usage."""
    names = balances.key("organization", ORGANIZATION), balances.key("key", KEY)
    return int(client().hget(names[0], "held") or 0), int(client().hget(names[1], "held") or 0)


def push(hold: Hold, moved: Charge) -> None:
    outbox.push("worker-1", b"{}", reservations.reduce_to_cost(hold, moved))


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        (charge("0.002", "0.002"), (2_000_000, 2_000_000)),
        # Rounded up, with what keeping the data costs.
        (charge("0.0020000001", "0.0020000001", "0.001"), (3_000_001, 3_000_001)),
        # Paid with a key of the organization's own: no credits.
        (charge("0", "0.002"), (0, 2_000_000)),
        (charge("0", "0"), (0, 0)),
        # Dearer than the worst case.
        (charge("0.9", "0.9"), (900_000_000, 900_000_000)),
    ],
)
def test_what_it_did_not_cost_is_free_once_the_record_is_on_its_way(moved: Charge, expected: tuple[int, int]) -> None:
    hold = reserved(400_000_000)
    assert held() == (400_000_000, 400_000_000)
    push(hold, moved)
    assert held() == expected
    assert client().zcard(flight_key(ORGANIZATION)) == 0
    (note,) = reservations.notes_of("worker-1", 0).values()
    assert note.payload == note.flight == ""
    assert reservations.release([("worker-1", UUID(hold.id))], 0) == 1
    assert held() == (0, 0)


def test_the_next_request_may_have_it_at_once() -> None:
    hold = reserved(900_000_000)
    push(hold, charge("0.1", "0.1"))
    assert reserved(900_000_000).amount_nanos == 900_000_000
    assert held() == (1_000_000_000, 1_000_000_000)


def test_a_record_pushed_twice_gives_back_once() -> None:
    hold = reserved(400_000_000)
    push(hold, charge("0.002", "0.002"))
    push(hold, charge("0.002", "0.002"))
    assert held() == (2_000_000, 2_000_000)
    assert client().xlen(outbox.STREAMS[0]) == 2


def test_what_was_released_in_between_stays_so() -> None:
    hold = reserved(400_000_000)
    reservations.release([("worker-1", UUID(hold.id))], 0)
    push(hold, charge("0.002", "0.002"))
    assert held() == (0, 0)
    assert reservations.notes_of("worker-1", 0) == {}
    assert client().xlen(outbox.STREAMS[0]) == 1


def test_a_key_without_a_limit_holds_nothing() -> None:
    push(reserved(400_000_000, limit=None), charge("0.002", "0.002"))
    assert held() == (2_000_000, 0)


def test_a_dead_workers_request_that_was_recorded_is_not_swept() -> None:
    hold = reserved(1_000)
    push(hold, charge("0", "0"))
    worker_leases.expire_lease("worker-1")
    assert settle.sweep() == 0
    assert client().xlen(outbox.STREAMS[0]) == 1
    # Its note is the settler's to release; until then the worker is remembered.
    assert worker_leases.find_expired_workers(0) == ["worker-1"]
    reservations.release([("worker-1", UUID(hold.id))], 0)
    assert settle.sweep() == 0
    assert worker_leases.find_expired_workers(0) == []


def test_what_a_dead_worker_holds_for_a_record_that_was_put_aside_is_given_back() -> None:
    hold = reserved(400_000_000)
    push(hold, charge("0.002", "0.002"))
    worker_leases.expire_lease("worker-1")
    settle.sweep()
    assert held() == (2_000_000, 2_000_000), "it may yet be settled"
    outbox.acknowledge(outbox.read_batch("reader", 10, 10))
    settle.sweep()
    assert held() == (0, 0)
    assert worker_leases.find_expired_workers(0) == []
