"""Walks through the settlement model, made with the product's functions on real stores: after each step both agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest

from apps.billing import balance_copies, balances, ledger, reservations, worker_leases
from apps.billing.reservations import ReservationOutcome, ReservationRequest
from apps.gateway.settlement import outbox, retransmission, spool
from apps.gateway.settlement import settle as settlement
from apps.gateway.settlement.outbox import charge_of, encode
from apps.gateway.settlement.retransmission import Retransmission
from apps.kernel.ids import new_id
from apps.kernel.money import NANO
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import ServerState
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey
from apps.logs.entry import Entry
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.logs.entries import entry
from tests.proofs.models.checker import FAULT
from tests.proofs.models.settlement import COSTS, CREDITS, WORST, Balance, Message, Settlement, State
from tests.proofs.simulator.tasks import Task
from tests.support.cast import World, make_key

WALKS, STEPS = 40, 25
WORKER = "worker-replayed"
STREAM = outbox.STREAMS[0]
# The functions before which a settler pauses, after its commit: each is one of the model's stages.
STAGES = ((balances, "publish_or_raise"), (reservations, "release"), (outbox, "acknowledge"))


@contextmanager
def pausing_before_stages() -> Iterator[None]:
    """Let a settler's task pause before each stage, the first time that it calls the stage's function."""
    passed = set[tuple[Task, str]]()
    with ExitStack() as patches:
        for module, name in STAGES:
            stage = getattr(module, name)

            def paused(*args: Any, _stage: Any = stage, _name: str = name) -> Any:
                place = Task.running(), _name
                if place[0] is None or place in passed:
                    return _stage(*args)
                passed.add(place)
                return Task.call(lambda: _stage(*args), RuntimeError)

            patches.enter_context(patch.object(module, name, paused))
        yield


class Replay:
    """The product in the state of the model."""

    def __init__(self, world: World, key: ApiKey) -> None:
        valkey().flushall()
        spool.move(lambda *_: None)
        outbox.BUFFER.take()
        self.organization = world.acme
        Organization.objects.filter(pk=world.acme.pk).update(credits=CREDITS, credits_version=0)
        self.key = key
        self.records: list[Entry] = [entry(self.key, id=new_id(), cost=Decimal(cost)) for cost in COSTS]
        self.holds: dict[int, reservations.Hold] = {}
        self.settlers: dict[int, Task] = {}
        self.known: list[balances.Balance] = []
        self.run = 0
        self.retransmission = Retransmission(lambda: ServerState(str(self.run), 0))
        self.retransmission.look()

    def make(self, label: str) -> None:
        """Make a step or a fault of the model."""
        is_fault = label.startswith(FAULT)
        words = label.removeprefix(FAULT).split()
        match words:
            case ["worker", "reads", "balance"]:
                self.known = ledger.balances_of("organization", [self.organization.id])
            case ["worker", "publishes", "balance"]:
                balances.publish_or_raise(self.known)
            case ["worker", "reserves", number]:
                self._reserve(int(number))
            case ["answer", "to", "reservation", number, "is", "lost"]:
                self._reserve(int(number))
            case ["worker", "records", number]:
                self._record(int(number))
            case ["record", number, "is", "pushed", "twice"]:
                self._record(int(number))
            case ["record", number, "goes", "to", "the", "spool"]:
                spool.add(WORKER, encode(self.records[int(number)]))
            case ["spool", "is", "replayed"]:
                outbox.replay_spool()
            case ["worker", "pushes", "again"]:
                self.retransmission.look()
            case ["worker", "dies"]:
                worker_leases.expire_lease(WORKER)
            case ["sweeper", "sweeps"]:
                settlement.sweep()
            case ["settler", name, "read"]:
                self._read(int(name))
            case ["settler", name, "dies"] if is_fault:
                self.settlers.pop(int(name)).kill()
                self._abandon(f"settler-{name}")
            case ["settler", name, "stalls"] if is_fault:
                self._abandon(f"settler-{name}")
            case ["settler", name, "commit" | "publish" | "release" | "acknowledge"]:
                self.settlers[int(name)].resume()
            case ["watch", "moves", "the", "copy", "forward"]:
                balance_copies.resync()
            case ["store", "evicts", "the", "copy"]:
                valkey().delete(balances.key("organization", self.organization.id))
            case ["store", "forgets"]:
                valkey().flushall()
                self.run += 1
            case _:
                raise AssertionError(label)

    def _reserve(self, number: int) -> None:
        note = entry(self.key, id=self.records[number].id, swept=True, cost=None)
        answer = reservations.reserve(
            ReservationRequest(
                id=self.records[number].id,
                worker=WORKER,
                organization_id=self.organization.id,
                api_key_id=self.key.id,
                amount_nanos=WORST * NANO,
                from_credits=True,
                catalog_token=generation.read_generation_token(generation.CATALOG),
                organization_token=generation.read_generation_token(
                    generation.organization_scope(self.organization.id)
                ),
                payload=encode(note).decode(),
            )
        )
        assert answer.outcome is ReservationOutcome.HELD
        assert answer.hold is not None
        self.holds[number] = answer.hold

    def _record(self, number: int) -> None:
        record = self.records[number]
        outbox.enqueue(WORKER, encode(record), reservations.reduce_to_cost(self.holds[number], charge_of(record)))

    def _read(self, name: int) -> None:
        outbox.prepare()
        # Messages that another settler left, then new ones, which the next read would bring.
        messages = [
            message for left in (True, False) for message in outbox.read_batch(f"settler-{name}", 100, 0, left=left)
        ]
        # It begins with its commit.
        self.settlers[name] = Task(lambda: settlement.settle(messages))

    def _abandon(self, reader: str) -> None:
        """Let a settler's messages be claimed, as after ten seconds."""
        outbox.prepare()
        for one in valkey().xpending_range(STREAM, outbox.GROUP, "-", "+", 100):
            if one["consumer"] == reader:
                place = STREAM, outbox.GROUP, reader, 0, [one["message_id"]]
                valkey().xclaim(*place, idle=outbox.ABANDONED_AFTER, justid=True)

    def close(self) -> None:
        """End the settlers."""
        for task in self.settlers.values():
            task.kill()

    # --- the same view of both

    def view(self) -> dict[str, Any]:
        """Return the product's state in the model's terms."""
        (true,) = ledger.balances_of("organization", [self.organization.id])
        amount, version, held = valkey().hmget(
            balances.key("organization", self.organization.id), "amount", "version", "held"
        )
        notes = reservations.notes_of(WORKER, 0)
        rows = {row.id: row for row in RequestLog.objects.filter(id__in=[one.id for one in self.records])}
        number_of = {str(one.id): number for number, one in enumerate(self.records)}
        stream = [fields["record"] for _, fields in valkey().xrange(STREAM)]
        return {
            "ledger": Balance(int(true.amount), true.version),
            "copy": None if amount is None else Balance(int(amount) // NANO, int(version)),
            "held": int(held or 0) // NANO,
            "notes": [
                "" if (note := notes.get(one.id)) is None else "open" if note.payload else "recorded"
                for one in self.records
            ],
            "rows": [
                "" if (row := rows.get(one.id)) is None else "swept" if row.swept else "own" for one in self.records
            ],
            "stream": [
                (number, '"swept":true' in text)
                for text in stream
                for identifier, number in number_of.items()
                if identifier in text
            ],
        }


def view_of(state: State) -> dict[str, Any]:
    """Return the model's state in the same terms."""
    return {
        "ledger": state.ledger,
        "copy": state.copy,
        "held": state.held,
        "notes": [one.note for one in state.requests],
        "rows": [one.row for one in state.requests],
        "stream": [Message(*one)[:2] for one in state.stream],
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", range(4))
def test_the_product_takes_the_steps_of_the_model(world: World, seed: int) -> None:
    """Walks at random, most of them with faults; the product is in the model's state after each step."""
    model, chance, key = Settlement(), random.Random(seed), make_key(world.olivia, world.project).key
    with pausing_before_stages(), patch.object(retransmission, "_UNDER_WAY", 3600):
        for _ in range(WALKS // 4):
            RequestLog.objects.all().delete()
            replay, state, taken = Replay(world, key), model.initial(), list[str]()
            for _ in range(STEPS):
                moves = [move for move in model.steps(state) if move[1] != state]
                if chance.random() < 0.25 or not moves:
                    moves = [(FAULT + label, after) for label, after in model.faults(state)]
                label, state = chance.choice(moves)
                taken.append(label)
                replay.make(label)
                assert replay.view() == view_of(state), "\n".join(taken)
            replay.close()
