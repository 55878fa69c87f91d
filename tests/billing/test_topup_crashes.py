"""A process dies between any two steps of a top-up: one charge, one credit, a clean ledger."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from apps.billing import ledger, payment_processor, tasks, topup
from apps.billing.models import Transaction
from apps.organizations.journal import audit
from tests.support.cast import World, signed_in
from tests.support.payments import add_card, books
from tests.support.stripe_stub import StripeStub


class Killed(BaseException):
    """The process died here."""


def age(**by: float) -> None:
    """Let every transaction be older."""
    Transaction.objects.update(created_at=timezone.now() - timedelta(**by))


POINTS: list[tuple[Any, str, str]] = [
    (payment_processor, "charge", "before"),
    (payment_processor, "charge", "after"),
    (topup, "sync", "before"),
    (ledger, "credit", "before"),
    (ledger, "credit", "after"),
    (audit, "record", "second"),
    (topup, "_complete", "after"),
]


@pytest.mark.parametrize(("module", "name", "when"), POINTS, ids=lambda value: getattr(value, "__name__", value))
def test_whoever_dies_anywhere_charges_once_and_credits_once(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, when: str
) -> None:
    add_card(stripe, world.acme)
    caller = signed_in(world.olivia)
    step, calls = getattr(module, name), []

    def die(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        if when == "before" or (when == "second" and len(calls) == 2):
            raise Killed
        answer = step(*args, **kwargs)
        if when == "after":
            raise Killed
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(module, name, die)
        with pytest.raises(Killed):
            caller.post(f"/organization/{world.acme.id}/top-ups", {"amount": 25}, **{"Idempotency-Key": "one"})
    assert books(world.acme)[0] == (Decimal(25) if name == "_complete" else Decimal(0))
    # The client asks again, and the task looks after it.
    again = caller.post(f"/organization/{world.acme.id}/top-ups", {"amount": 25}, **{"Idempotency-Key": "one"})
    assert (again.status_code, again.json()["transaction"]["status"]) == (200, "completed")
    age(minutes=3)
    tasks.recover_payments()
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])
    assert stripe.paid() == [2500]


@pytest.mark.parametrize(("module", "name", "when"), POINTS, ids=lambda value: getattr(value, "__name__", value))
def test_the_task_alone_brings_it_to_its_end(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, when: str
) -> None:
    add_card(stripe, world.acme)
    row = topup.begin(world.acme, Decimal(25))
    step = getattr(module, name)

    def die(*args: Any, **kwargs: Any) -> Any:
        if when != "before":
            step(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, die)
        with pytest.raises(Killed):
            topup.pay(row)
    age(minutes=3)
    tasks.recover_payments()
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])
    assert stripe.paid() == [2500]
