"""A process dies between any two steps of starting a subscription: one subscription, one payment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.billing import payment_processor, subscription, tasks
from apps.billing.models import Transaction
from apps.organizations.models import Plan
from tests.billing.test_subscription import STARTED, period_end, plan_of, shown, start
from tests.support.cast import World
from tests.support.payments import add_card, books
from tests.support.stripe_stub import StripeStub


class Killed(BaseException):
    """The process died here."""


POINTS: list[tuple[Any, str, str]] = [
    (payment_processor, "subscribe", "before"),
    (payment_processor, "subscribe", "after"),
    (payment_processor, "paid_invoices", "before"),
    (subscription, "_take_over", "before"),
    (subscription, "_book", "after"),
    (subscription, "_go_on", "after"),
    (subscription, "_take_over", "after"),
]


@pytest.mark.parametrize(("module", "name", "when"), POINTS, ids=lambda value: getattr(value, "__name__", value))
def test_whoever_dies_anywhere_there_is_one_subscription_and_one_payment(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, when: str
) -> None:
    add_card(stripe, world.acme)
    step = getattr(module, name)

    def die(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            step(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, die)
        with pytest.raises(Killed):
            start(world)
    Transaction.objects.update(created_at=timezone.now() - timedelta(minutes=3))
    tasks.recover_payments()
    tasks.recover_payments()
    assert (shown(world)["status"], plan_of(world.acme)) == ("active", (Plan.PRO, period_end(stripe)))
    assert (books(world.acme)[1], len(stripe.of_kind("invoice"))) == ([STARTED], 1)


@pytest.mark.parametrize(("lost", "ends"), [("request", "failed"), ("answer", "completed")])
def test_an_old_attempt_is_looked_for_and_never_made_anew(
    world: World, stripe: StripeStub, lost: str, ends: str
) -> None:
    add_card(stripe, world.acme)
    stripe.lose("/v1/subscriptions", lost)
    assert start(world).json()["transaction"]["status"] == "pending"
    Transaction.objects.update(created_at=timezone.now() - timedelta(hours=2))
    tasks.recover_payments()
    assert books(world.acme)[1] == [("subscription_start", "49", ends)]
    assert len(stripe.of_kind("subscription")) == (ends == "completed")
