"""The checker of histories, on histories with and without an order, and on calls of the product from many threads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import connection, transaction

from apps.billing import balances, ledger, reservations
from apps.billing.balances import publish_or_raise
from apps.billing.reservations import ExtensionOutcome, ReservationOutcome, ReservationRequest
from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import charge_of, encode
from apps.kernel.ids import new_id
from apps.kernel.money import NANO
from apps.kernel.valkey import generation
from apps.organizations.models import Organization
from tests.logs.entries import entry
from tests.proofs.history import (
    NEVER,
    Balance,
    Call,
    Extend,
    History,
    Operation,
    Publish,
    Record,
    Release,
    Reserve,
    find_order,
)
from tests.support.cast import World, make_key, world

__all__ = ["world"]


def calls(*given: tuple[Operation, float, float]) -> list[Call]:
    return [Call("credits", *one) for one in given]


LINEARIZABLE = {
    "one after the other": calls((Reserve("a", 6, 6), 0, 1), (Reserve("b", 6, None), 2, 3)),
    "the second of two concurrent calls came first": calls((Reserve("a", 6, None), 0, 3), (Reserve("b", 6, 6), 1, 2)),
    "free again after the cost is known": calls(
        (Reserve("a", 6, 6), 0, 1), (Record("a", 1), 2, 3), (Reserve("b", 9, 9), 4, 5)
    ),
    "an older publication changes nothing": calls(
        (Publish(4, 2), 0, 1), (Publish(7, 1), 2, 3), (Reserve("a", 5, None), 4, 5)
    ),
    "a call that never returned has happened": calls((Reserve("a", 6, 6), 0, NEVER), (Reserve("b", 6, None), 1, 2)),
    "a call that never returned has not happened": calls((Reserve("a", 6, 6), 0, NEVER), (Reserve("b", 6, 6), 1, 2)),
    "repeated with the same answer": calls((Reserve("a", 6, 6), 0, 1), (Reserve("a", 6, 6), 2, 3)),
    "extended, recorded, and gone": calls(
        (Reserve("a", 2, 2), 0, 1),
        (Extend("a", 3, "held", 5), 2, 3),
        (Record("a", 4), 4, 5),
        (Extend("a", 1, "gone"), 6, 7),
        (Release("a", True), 8, 9),
        (Release("a", False), 10, 11),
    ),
}
NOT_LINEARIZABLE = {
    "the same credits twice": calls((Reserve("a", 6, 6), 0, 1), (Reserve("b", 6, 6), 2, 3)),
    "the same credits twice at once": calls((Reserve("a", 6, 6), 0, 2), (Reserve("b", 6, 6), 1, 3)),
    "refused although all is free": calls((Reserve("a", 6, None), 0, 1), (Reserve("b", 6, 6), 2, 3)),
    "granted by a hold that is released only later": calls(
        (Reserve("a", 6, 6), 0, 1), (Reserve("b", 6, 6), 2, 3), (Release("a", True), 4, 5)
    ),
    "an older publication counts": calls((Publish(4, 2), 0, 1), (Publish(7, 1), 2, 3), (Reserve("a", 5, 5), 4, 5)),
    "released twice": calls((Reserve("a", 6, 6), 0, 1), (Release("a", True), 2, 3), (Release("a", True), 4, 5)),
    "extended past the balance": calls((Reserve("a", 6, 6), 0, 1), (Extend("a", 5, "held", 11), 2, 3)),
    "short although enough is free": calls((Reserve("a", 6, 6), 0, 1), (Extend("a", 4, "short"), 2, 3)),
}


@pytest.mark.parametrize("history", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_an_order_is_found(history: list[Call]) -> None:
    order = find_order(history, Balance(10))
    assert order is not None
    assert {call for call in history if call.returned != NEVER} <= set(order) <= set(history)


@pytest.mark.parametrize("history", NOT_LINEARIZABLE.values(), ids=NOT_LINEARIZABLE)
def test_no_order_is_found(history: list[Call]) -> None:
    assert find_order(history, Balance(10)) is None


def test_reservations_may_pass_the_balance_by_the_allowance() -> None:
    history = NOT_LINEARIZABLE["the same credits twice"]
    assert find_order(history, Balance(10), allowance=1) is None
    assert find_order(history, Balance(10), allowance=2) == history


# Threads, and requests of each, with credits for about half of them at a time.
THREADS, REQUESTS, CREDITS = 6, 8, 6


class Spender:
    """Requests of one organization, made by the functions that the gateway calls, each recorded in a history."""

    def __init__(self, world: World) -> None:
        self.organization, self.key = world.acme, make_key(world.olivia, world.project).key
        self.history, self.name = History(), balances.key("organization", world.acme.id)
        Organization.objects.filter(pk=world.acme.pk).update(credits=CREDITS, credits_version=1)
        balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
        self.tokens = [
            generation.read_generation_token(scope)
            for scope in (generation.CATALOG, generation.organization_scope(world.acme.id))
        ]

    def spend(self, thread: int) -> None:
        """Make requests one after the other: reserve, extend some, record, charge, publish, release, top up."""
        chance = random.Random(thread)
        try:
            for _ in range(REQUESTS):
                self._ask(chance, f"worker-{thread}")
        finally:
            connection.close()

    def _ask(self, chance: random.Random, worker: str) -> None:
        identifier, least = new_id(), chance.randint(1, 3) * NANO
        name = str(identifier)
        want = ReservationRequest(
            id=identifier,
            worker=worker,
            organization_id=self.organization.id,
            api_key_id=self.key.id,
            amount_nanos=least * 2,
            part_nanos=least,
            least_nanos=least,
            from_credits=True,
            catalog_token=self.tokens[0],
            organization_token=self.tokens[1],
            payload="{}",
        )

        def reserved(answer: reservations.ReservationResult) -> Reserve:
            assert answer.outcome in (ReservationOutcome.HELD, ReservationOutcome.NO_CREDITS)
            return Reserve(name, least, None if answer.hold is None else answer.hold.amount_nanos)

        hold = self.history.run(lambda: reservations.reserve(want), self.name, reserved).hold
        if hold is None:
            return
        if chance.random() < 0.5:
            hold = self._extend(hold, least)
        record = entry(self.key, id=identifier, cost=Decimal(chance.randint(1, hold.amount_nanos // NANO)))
        settled = reservations.reduce_to_cost(hold, charge_of(record))
        self.history.run(
            lambda: outbox.push(worker, encode(record), settled), self.name, lambda _: Record(name, settled.amount)
        )
        with transaction.atomic():
            changed = ledger.charge([charge_of(record)])
        balances.publish_or_raise(changed)
        self.history.run(
            lambda: reservations.release([(worker, identifier)], 0), self.name, lambda count: Release(name, count == 1)
        )
        if chance.random() < 0.5:
            ledger.grant(self.organization.id, Decimal(2), "topped up")

    def _extend(self, hold: reservations.Hold, least: int) -> reservations.Hold:
        def extended(answer: reservations.HoldExtension[reservations.Hold]) -> Extend:
            assert answer.growth in (ExtensionOutcome.HELD, ExtensionOutcome.SHORT)
            return Extend(hold.id, least, answer.growth.value, answer.hold.amount_nanos)

        return self.history.run(lambda: reservations.extend(hold, least, least, least), self.name, extended).hold

    def publish(self, changed: Sequence[balances.Balance]) -> list[balances.Balance]:
        """Publish, also for the ledger itself; the organization's balance is recorded."""
        (balance,) = [one for one in changed if one.scope == "organization"]
        operation = Publish(balance.nanos, balance.version)
        return self.history.run(lambda: publish_or_raise(changed), self.name, lambda _: operation)


@pytest.mark.django_db(transaction=True)
def test_reservations_of_many_threads_have_an_order(world: World) -> None:
    spender = Spender(world)
    with patch.object(balances, "publish_or_raise", spender.publish), ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(spender.spend, range(THREADS)))
    made = spender.history.calls
    granted = [call for call in made if isinstance(call.operation, Reserve) and call.operation.granted]
    refused = [call for call in made if isinstance(call.operation, Reserve) and not call.operation.granted]
    assert granted
    assert refused
    assert len(granted) + len(refused) == THREADS * REQUESTS
    assert find_order(made, Balance(CREDITS * NANO, 1)) is not None
    # The same answers are no answers of a smaller balance.
    assert find_order(made, Balance(NANO, 1)) is None
