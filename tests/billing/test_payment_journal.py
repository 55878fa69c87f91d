"""Every step of a payment is in the journal of its organization, once, with its amount or the reason of a failure."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from apps.billing import cards, gifts, ledger, refunds, subscription, tasks, topup
from apps.billing.models import BillingAccount, Transaction
from apps.organizations.models import AuditEntry
from tests.support.cast import World
from tests.support.payments import add_card
from tests.support.stripe_stub import StripeStub

USD = Decimal


def journal(prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return the steps that were recorded, oldest first, with their details."""
    rows = AuditEntry.objects.filter(action__startswith=prefix).order_by("id")
    return [(row.action, dict(row.details)) for row in rows]


def test_a_top_up_that_is_paid_and_one_that_is_not(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    paid = topup.pay(topup.begin(world.acme, USD(25))).transaction
    topup.pay(paid)
    topup.recover(paid)
    assert journal("top_up") == [("top_up.create", {"amount": "25"}), ("top_up.complete", {"credits": "25"})]
    stripe.of_kind("payment_method")[0]["kind"] = "declined"
    row = topup.begin(world.acme, USD(7), "key-1")
    assert topup.begin(world.acme, USD(7), "key-1") == row
    failed = topup.pay(row).transaction
    topup.pay(failed)
    assert journal("top_up")[2:] == [
        ("top_up.create", {"amount": "7"}),
        ("top_up.fail", {"reason": "Your card has insufficient funds."}),
    ]
    rows = AuditEntry.objects.filter(action__startswith="top_up")
    assert {row.organization_id for row in rows} == {world.acme.id}


def test_a_refund_that_is_paid_and_one_that_is_not(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    paid = topup.pay(topup.begin(world.acme, USD(25))).transaction
    refunds.pay(refunds.begin(paid, USD(5), "Ordered twice"))
    details = {"amount": "5", "reason": "Ordered twice", "topUp": str(paid.id)}
    assert journal("refund") == [("refund.create", details), ("refund.complete", details)]
    # Refunded there meanwhile, so that nothing is left.
    row = refunds.begin(paid, USD(20), "The rest")
    stripe.things[paid.processor_payment_intent_id or ""]["amount"] = 500
    failed = refunds.pay(row)
    assert (failed.status, failed.description) == ("failed", "Refund of Top-up, visa 4242: More than was paid")
    refunds.pay(failed)
    assert journal("refund")[3:] == [("refund.fail", {"reason": "More than was paid"})]


def test_a_subscription_from_its_beginning_to_its_end(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    subscription.start(world.acme)
    [made], [invoice] = stripe.of_kind("subscription"), stripe.of_kind("invoice")
    began = [
        ("subscription.create", {"amount": "49"}),
        ("subscription.pay", {"amount": "49", "invoice": invoice["id"]}),
    ]
    assert journal("subscription") == began
    subscription.cancel(world.acme)
    subscription.cancel(world.acme)
    subscription.start(world.acme)
    account = BillingAccount.objects.get(organization=world.acme)
    subscription.sync(account)
    assert [action for action, _ in journal("subscription")[2:]] == ["subscription.cancel", "subscription.resume"]
    made["status"] = "canceled"
    subscription.sync(BillingAccount.objects.get(organization=world.acme))
    assert [action for action, _ in journal("subscription")[4:]] == ["subscription.end"]
    rows = Transaction.objects.filter(type__startswith="subscription").order_by("id")
    assert [(row.type, row.amount, row.status) for row in rows] == [
        ("subscription_start", 49, "completed"),
        ("subscription_cancel", 0, "completed"),
        ("subscription_end", 0, "completed"),
    ]


def test_a_subscription_that_was_not_paid(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    stripe.lose("/v1/subscriptions", "request")
    row = subscription.start(world.acme)
    assert row is not None
    assert row.status == "pending"
    Transaction.objects.update(created_at=timezone.now() - timedelta(hours=2))
    tasks.recover_payments()
    tasks.recover_payments()
    assert journal("subscription") == [
        ("subscription.create", {"amount": "49"}),
        ("subscription.fail", {"reason": "the payment was not made"}),
    ]
    row.refresh_from_db()
    assert row.description == "Pro plan: the payment was not made"


def test_cards(world: World, stripe: StripeStub) -> None:
    first, second = add_card(stripe, world.acme), add_card(stripe, world.acme, number="1111")
    cards.make_default(second)
    cards.make_default(second)
    second.refresh_from_db()
    cards.remove(second)
    cards.sync(second.processor_payment_method_id, second.processor_customer_id)
    told = [(action, details["last4"], details["isDefault"]) for action, details in journal("payment_method")]
    assert told == [
        ("payment_method.create", "4242", True),
        ("payment_method.create", "1111", False),
        ("payment_method.update", "1111", True),
        # The default goes to the card that stays before the other one is removed.
        ("payment_method.update", "4242", True),
        ("payment_method.delete", "1111", False),
    ]
    first.refresh_from_db()
    assert first.is_default is True


def test_a_gift(world: World) -> None:
    gifts.give(organization=world.acme, amount=USD("1.5"), description="Sorry")
    assert journal("credit_gift") == [("credit_gift.create", {"amount": "1.5", "description": "Sorry"})]
    assert ledger.read_totals().received == USD("1.5")
