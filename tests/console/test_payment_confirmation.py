"""A payment that the card's bank wants confirmed: the way to the bank's page and back, and the messages about it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from apps.billing.models import Transaction
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words
from tests.support.payments import _stub as _stub
from tests.support.payments import add_card, books, stripe
from tests.support.stripe_stub import StripeStub

__all__ = ["stripe"]
HERE = "http://127.0.0.1:8000"


@pytest.fixture
def row(world: World, stripe: StripeStub) -> Transaction:
    """A top-up of Acme that waits for its card's holder."""
    add_card(stripe, world.acme, "asks")
    Visitor(world.olivia).send(page(world.acme, "billing/top-up"), {"amount": "25"})
    return Transaction.objects.get()


def test_the_holder_confirms_at_the_bank_and_is_credited_once(
    world: World, stripe: StripeStub, row: Transaction
) -> None:
    olivia = Visitor(world.olivia)
    shown = olivia.open(page(world.acme, "billing"))
    confirm = page(world.acme, f"billing/payments/{row.id}/confirm")
    assert f'action="{confirm}"' in shown.content.decode()
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "pending")])

    [payment] = stripe.of_kind("payment_intent")
    led = olivia.send(confirm)
    assert (led.status_code, f'href="{stripe.address}/bank/{payment["id"]}"' in led.content.decode()) == (200, True)
    way_back = stripe.confirm(payment["id"])
    assert way_back == f"{HERE}{page(world.acme, f'billing/payments/{row.id}/confirmed')}"
    for _ in range(2):
        answer = olivia.open(way_back.removeprefix(HERE))
        assert (answer.status_code, answer["Location"]) == (303, page(world.acme, "billing"))
    told = olivia.open(page(world.acme, "billing"))
    assert "$25.00 were added to your credits." in words(told)
    assert confirm not in told.content.decode()
    assert stripe.paid() == [2500]
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])
    # Pressed on a page that was opened before: nothing is left to confirm.
    assert olivia.send(confirm).status_code == 303
    assert books(world.acme)[0] == 25


def test_coming_back_unconfirmed_adds_nothing(world: World, stripe: StripeStub, row: Transaction) -> None:
    olivia = Visitor(world.olivia)
    assert olivia.open(page(world.acme, f"billing/payments/{row.id}/confirmed")).status_code == 303
    assert "The payment is being processed." in words(olivia.open(page(world.acme, "billing")))
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "pending")])


def test_a_payment_that_failed_at_the_bank_is_told_and_given_up(
    world: World, stripe: StripeStub, row: Transaction
) -> None:
    stripe.of_kind("payment_intent")[0]["status"] = "requires_payment_method"
    olivia = Visitor(world.olivia)
    olivia.open(page(world.acme, f"billing/payments/{row.id}/confirmed"))
    assert "Nothing was charged." in words(olivia.open(page(world.acme, "billing")))
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "failed")])


def test_who_may_not_neither_leads_to_a_bank_nor_asks_the_processor(
    world: World, stripe: StripeStub, row: Transaction
) -> None:
    asked = len(stripe.asked)
    for user in (world.adam, world.dana, world.sam):
        assert Visitor(user).send(page(world.acme, f"billing/payments/{row.id}/confirm")).status_code == 403
        assert Visitor(user).open(page(world.acme, f"billing/payments/{row.id}/confirmed")).status_code == 403
    for strange in (row.id, "nothing"):
        assert Visitor(world.sam).send(page(world.elsewhere, f"billing/payments/{strange}/confirm")).status_code == 404
    assert len(stripe.asked) == asked
