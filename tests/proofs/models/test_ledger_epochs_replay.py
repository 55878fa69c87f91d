"""Walks through the model of ledger epochs, made with the product's functions on real stores: each step ends alike."""

from __future__ import annotations

import ast
import random
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F

from apps.billing import balance_copies, balances, ledger
from apps.billing.balance_copies import DivergentCopy
from apps.billing.models import LedgerEpoch
from apps.kernel.money import NANO
from apps.kernel.valkey.redis import client as valkey
from apps.organizations.models import Organization
from tests.proofs.models.checker import FAULT
from tests.proofs.models.ledger_epochs import Balance, LedgerEpochs, State
from tests.support.cast import World

WALKS, STEPS = 25, 30


class Replay:
    """An organization's balance and its copy, and the watches' reads."""

    def __init__(self, world: World) -> None:
        valkey().flushall()
        self.id = world.acme.id
        Organization.objects.filter(pk=self.id).update(credits=0, credits_version=0)
        # Numbers of epochs in the order in which they began: the model counts them.
        self.epochs = [balance_copies.read_epoch()]
        self.read: dict[str, tuple[list[str | None], int]] = {}
        self.alarms: dict[str, int] = {}

    def make(self, label: str) -> None:
        """Make a step or a fault of the model."""
        words, _, value = label.removeprefix(FAULT).partition("(")
        told = Balance(*ast.literal_eval(f"({value.partition(')')[0]})")) if value else Balance()
        match words.split():
            case ["ledger", "moves", number]:
                rows = Organization.objects.filter(pk=self.id)
                rows.update(credits=Decimal(number), credits_version=F("credits_version") + 1)
            case ["store", "takes"]:
                self._publish(told)
            case ["publication"]:
                if label.endswith("comes twice"):
                    self._publish(told)
            case ["watch", name, "reads", "one", "side"]:
                copy = balances.key("organization", self.id)
                (fields,) = balance_copies.read_fields([copy], "amount", "version", "epoch")
                self.read[name] = fields, balance_copies.read_epoch_in_redis()
            case ["watch", name, "compares"]:
                self._compare(name)
            case ["watch", name, "begins", "an", "epoch"]:
                number = balance_copies.begin_epoch("replayed", instead_of=self.alarms.pop(name))
                if number not in self.epochs:
                    self.epochs.append(number)
            case ["watch", _, "voids", "older", "epochs"]:
                balances.void_epochs_before(balance_copies.read_epoch())
            case ["watch", name, "dies"]:
                self.alarms.pop(name, None)
            case ["database", "is", "restored", "to"]:
                Organization.objects.filter(pk=self.id).update(credits=told.amount, credits_version=told.version)
                LedgerEpoch.objects.filter(number__gt=self.epochs[told.epoch]).delete()
            case ["store", "forgets"]:
                valkey().flushall()
            case _:
                raise AssertionError(label)

    def _publish(self, told: Balance) -> None:
        amount, epoch = Decimal(told.amount), self.epochs[told.epoch]
        balances.publish_or_raise([balances.Balance("organization", self.id, amount, told.version, epoch)])

    def _compare(self, name: str) -> None:
        """Raise the alarm as the product's watch does."""
        (amount, version, epoch), store_epoch = self.read.pop(name)
        (true,) = ledger.balances_of("organization", [self.id])
        is_ahead = amount is not None and DivergentCopy(true, int(amount), int(version or 0), int(epoch or 0)).is_ahead
        if store_epoch > balance_copies.read_epoch() or is_ahead:
            self.alarms[name] = true.epoch

    def view(self) -> dict[str, Any]:
        """Return the product's state in the model's terms."""
        (true,) = ledger.balances_of("organization", [self.id])
        amount, version, epoch = valkey().hmget(balances.key("organization", self.id), "amount", "version", "epoch")
        store_epoch = balance_copies.read_epoch_in_redis()
        copy = None if amount is None else Balance(int(amount) // NANO, int(version), self.epochs.index(int(epoch)))
        return {
            "ledger": Balance(int(true.amount), true.version, self.epochs.index(true.epoch)),
            "copy": copy,
            "store epoch": self.epochs.index(store_epoch) if store_epoch else 0,
            "alarmed": sorted(self.alarms),
        }


def view_of(state: State) -> dict[str, Any]:
    """Return the model's state in the same terms."""
    return {
        "ledger": state.ledger,
        "copy": state.copy,
        "store epoch": state.store_epoch,
        "alarmed": [str(name) for name, watch in enumerate(state.watches) if watch.stage == "alarmed"],
    }


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(2))
def test_the_product_takes_the_steps_of_the_model(world: World, seed: int) -> None:
    model, chance, begun = LedgerEpochs(), random.Random(seed), 0
    for _ in range(WALKS):
        replay, state, taken = Replay(world), model.initial(), list[str]()
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
        begun += len(replay.epochs) - 1
    assert begun > 0
