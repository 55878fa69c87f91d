"""Walks through the model of line leases, made with the product's functions on PostgreSQL: each step ends alike."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db.models.functions import Now
from django.test import override_settings
from django.utils import timezone

from apps.batches import line_runs
from apps.batches.models import Batch, BatchFormat, BatchLine, BatchStatus, LineOutcome
from apps.billing.models import LedgerEntry
from apps.gateway.settlement import settle as settlement
from apps.gateway.settlement.outbox import OutboxMessage, encode
from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from tests.logs.entries import entry
from tests.proofs.models.checker import FAULT
from tests.proofs.models.line_leases import WORKERS, LineLeases, State
from tests.support.cast import World, make_key

WALKS, STEPS = 15, 20


class Replay:
    """One line of a batch, and two workers by their names."""

    def __init__(self, key: ApiKey) -> None:
        now, self.key = timezone.now(), key
        self.batch = Batch.objects.create(
            id=f"batch_{new_id().hex}",
            format=BatchFormat.OPENAI,
            organization_id=key.project.organization_id,
            project_id=key.project_id,
            api_key_id=key.id,
            endpoint="/v1/chat/completions",
            status=BatchStatus.IN_PROGRESS,
            created_at=now,
            expires_at=now + timedelta(days=1),
            kept_until=now + timedelta(days=1),
            paused_until=now,
        )
        self.line = BatchLine.objects.create(batch=self.batch, position=0, lease_until=now)
        # Each worker's own copy of the line, and the log ids in the order in which they were drawn.
        self.copies: dict[str, BatchLine] = {}
        self.ids: list[UUID] = []
        self.results = 0

    def make(self, label: str) -> None:
        """Make a step or a fault of the model."""
        if label == "lease ends":
            return self._end_lease()
        _, name, *step = label.removeprefix(FAULT).split()
        match " ".join(step):
            case "claims":
                self._claim(name)
            case "renews":
                assert line_runs.renew(name, [self.line.pk]) == {self.line.pk}
            case "stops":
                assert line_runs.renew(name, [self.line.pk]) == set()
            case "records answer":
                self._record(name, Decimal(1))
            case "is turned away":
                self._record(name, Decimal(0))
                self.copies[name].turned_away += 1
            case "is refused" | "dies":
                pass
            case "stores result":
                copy = self.copies[name]
                self.results += line_runs.end(copy, name, LineOutcome.SUCCEEDED, "sealed")
            case "puts off":
                copy = self.copies[name]
                line_runs.put_off(copy, name, 0, 0, turned_away=copy.turned_away > self.line.turned_away)
            case "hands over":
                line_runs.hand_over(name)
            case "stalls":
                self._end_lease()
            case _:
                raise AssertionError(label)
        return None

    def _claim(self, name: str) -> None:
        (copy,) = line_runs.claim(self.batch, name, 1, [])
        assert copy.log_id is not None
        copy.turned_away = self.line.turned_away
        self.copies[name] = copy
        if copy.log_id not in self.ids:
            self.ids.append(copy.log_id)

    def _record(self, name: str, cost: Decimal) -> None:
        """Settle the record of an answer, or of one that a provider turned away."""
        status = 200 if cost else 429
        record = entry(self.key, id=self.copies[name].log_id, cost=cost, status_code=status, has_error=not cost)
        settlement.settle([OutboxMessage("0-1", name, encode(record).decode())])

    def _end_lease(self) -> None:
        BatchLine.objects.filter(pk=self.line.pk).update(lease_until=Now())

    def view(self) -> dict[str, Any]:
        """Return the line, its rows and its charges in the model's terms."""
        line = BatchLine.objects.get(pk=self.line.pk)
        is_open = line.outcome == LineOutcome.OPEN
        costs = dict(RequestLog.objects.filter(id__in=self.ids).values_list("id", "cost"))
        charges = LedgerEntry.objects.filter(kind=LedgerEntry.Kind.USAGE, reference__in=self.ids)
        return {
            "is_open": is_open,
            "owner": int(line.lease_owner) if line.lease_owner else None,
            "is_leased": is_open and line.lease_until > timezone.now(),
            "log_id": self.ids.index(line.log_id) + 1 if line.log_id else 0,
            "results": self.results,
            "rows": ["" if (cost := costs.get(one)) is None else "paid" if cost else "free" for one in self.ids],
            "charges": charges.count(),
        }


def view_of(state: State) -> dict[str, Any]:
    """Return the model's state in the same terms."""
    return {name: getattr(state, name) for name in ("is_open", "owner", "is_leased", "log_id", "results")} | {
        "rows": list(state.rows),
        "charges": state.charges,
    }


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(2))
@override_settings(BACKGROUND_LEASE=600)
def test_the_product_takes_the_steps_of_the_model(world: World, seed: int) -> None:
    model, chance, key = LineLeases(), random.Random(seed), make_key(world.olivia, world.project).key
    assert {str(name) for name in WORKERS} == {"0", "1"}
    for _ in range(WALKS):
        replay, state, taken = Replay(key), model.initial(), list[str]()
        for _ in range(STEPS):
            moves = [move for move in model.steps(state) if move[1] != state]
            faults = [(FAULT + label, after) for label, after in model.faults(state)]
            if faults and (chance.random() < 0.25 or not moves):
                moves = faults
            if not moves:
                break
            label, state = chance.choice(moves)
            taken.append(label)
            replay.make(label)
            assert replay.view() == view_of(state), "\n".join(taken)
