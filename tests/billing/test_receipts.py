"""E-mails about payments that went well: once each, to owners and the billing address, and none about earlier ones."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone

from apps.billing import payment_emails, refunds, subscription, tasks
from apps.billing.models import BillingAccount, PaymentMethod, Transaction
from apps.organizations.models import Organization
from tests.support.cast import World, signed_in
from tests.support.payments import add_card
from tests.support.stripe_stub import StripeStub


def sent() -> list[str]:
    """Send the due e-mails, twice; return the subjects of all e-mails so far."""
    for _ in range(2):
        tasks.send_receipts()
    return [message.subject for message in mail.outbox]


def add_payment(world: World, kind: str, **columns: Any) -> Transaction:
    """Add a completed transaction of Acme's."""
    usual = {"amount": Decimal(20), "status": "completed", "description": "Visa 4242"}
    return Transaction.objects.create(organization=world.acme, type=kind, **{**usual, **columns})


def test_a_top_up_is_receipted_once_it_is_paid(world: World, stripe: StripeStub) -> None:
    Organization.objects.filter(pk=world.acme.pk).update(billing_email="books@example.com", name="Acme\nBcc: x@y.z")
    row = add_payment(world, "credit_topup", status="pending", credit_amount=Decimal("18.5"))
    assert sent() == []
    Transaction.objects.filter(pk=row.pk).update(status="completed")
    assert sent() == ["Acme Bcc: x@y.z was topped up"]
    [message] = mail.outbox
    assert (message.to, message.bcc) == ([], ["books@example.com", world.olivia.email])
    assert "The payment of 20.00 USD" in message.body
    assert "Visa 4242. 18.50 USD were added to the credits." in message.body
    assert f"/app/o/{world.acme.pk}/billing" in message.body


@pytest.mark.parametrize(
    ("kind", "subject", "words"),
    [
        ("subscription_start", "Payment for the pro plan of Acme", "The payment of 20.00 USD"),
        ("subscription_cancel", "The pro plan of Acme was cancelled", "was cancelled: Visa 4242."),
        ("credit_refund", "A payment of Acme was refunded", "20.00 USD was refunded to Acme"),
    ],
)
def test_each_kind_has_an_email(world: World, kind: str, subject: str, words: str) -> None:
    add_payment(world, kind)
    assert sent() == [subject]
    assert words in mail.outbox[0].body


def test_failed_payments_gifts_and_rows_of_an_earlier_version_get_none(world: World) -> None:
    add_payment(world, "credit_topup", status="failed")
    add_payment(world, "credit_gift")
    # An earlier version does not know the column.
    row = add_payment(world, "credit_topup")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_transaction SET is_receipted = DEFAULT WHERE id = %s", [row.pk])
    add_payment(world, "credit_topup")
    Organization.objects.filter(pk=world.acme.pk).update(status="deleted")
    assert sent() == []
    Organization.objects.filter(pk=world.acme.pk).update(status="active")
    assert sent() == ["Acme was topped up"]


def test_a_mail_server_that_is_away_loses_no_receipt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add_payment(world, "credit_topup")

    def refuse(*_: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(mail.EmailMessage, "send", refuse)
        assert payment_emails.send_receipts() == 0
    assert [payment_emails.send_receipts() for _ in range(2)] == [1, 0]


def test_owners_are_told_once_of_a_card_that_expires_and_is_needed(world: World) -> None:
    december = datetime(2026, 12, 1, tzinfo=UTC)
    card = PaymentMethod.objects.create(
        organization=world.acme,
        processor_customer_id="cus_1",
        processor_payment_method_id="pm_1",
        brand="visa",
        last_four="4242",
        exp_month=12,
        exp_year=2026,
        is_default=True,
    )
    assert payment_emails.tell_of_expiring_cards(december) == 0
    Organization.objects.filter(pk=world.acme.pk).update(auto_top_up_enabled=True)
    november = datetime(2026, 11, 30, tzinfo=UTC)
    found = [payment_emails.tell_of_expiring_cards(moment) for moment in (november, december, december)]
    assert found == [0, 1, 0]
    [message] = mail.outbox
    assert message.subject == "The card on file for Acme expires this month"
    assert "The card visa 4242 of Acme expires at the end of December 2026." in message.body
    # The bank renews it, and the new one expires a year later.
    PaymentMethod.objects.filter(pk=card.pk).update(exp_year=2027)
    assert payment_emails.tell_of_expiring_cards(datetime(2027, 12, 5, tzinfo=UTC)) == 1


def test_a_subscription_needs_its_card_too(world: World) -> None:
    now = timezone.now()
    PaymentMethod.objects.create(
        organization=world.acme,
        processor_customer_id="c",
        processor_payment_method_id="p",
        exp_month=now.month,
        exp_year=now.year,
        is_default=True,
    )
    BillingAccount.objects.create(organization=world.acme, subscription_status="active")
    assert sent() == ["The card on file for Acme expires this month"]


def test_real_payments_are_receipted(world: World, stripe: StripeStub) -> None:
    """A top-up, its refund, a subscription and its end, as the payment processor reports them."""
    add_card(stripe, world.acme)
    olivia = signed_in(world.olivia)
    assert olivia.post(f"/organization/{world.acme.id}/top-ups", {"amount": "20"}).status_code == 200
    assert sent() == ["Acme was topped up"]
    payment = Transaction.objects.get(type="credit_topup")
    refunds.pay(refunds.begin(payment, Decimal(5), "by mistake"))
    subscription.start(world.acme)
    assert sorted(sent()) == [
        "A payment of Acme was refunded",
        "Acme was topped up",
        "Payment for the pro plan of Acme",
    ]
    assert olivia.send("DELETE", f"/organization/{world.acme.id}/subscription", {}).status_code == 200
    assert sent()[-1] == "The pro plan of Acme was cancelled"


def test_a_payment_without_a_description_is_named_by_its_kind(world: World) -> None:
    add_payment(world, "credit_topup", description="", credit_amount=None)
    assert sent() == ["Acme was topped up"]
    assert "was received: Credit Topup. 0.00 USD were added" in mail.outbox[0].body
