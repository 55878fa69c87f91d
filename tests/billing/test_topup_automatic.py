"""Automatic top-ups: when credits run low, once, and no more after three declines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from threading import Barrier
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone

from apps.billing import auto_topup, ledger, payment_emails, payment_processor, tasks, topup
from apps.billing.models import BillingAccount, Transaction
from apps.organizations.models import AuditEntry, Role
from tests.support.cast import World, join, make_user
from tests.support.payments import add_card, books
from tests.support.stripe_stub import StripeStub

PAID = [("credit_topup", "20", "completed")]


@pytest.fixture
def acme(world: World) -> Any:
    """Acme, topped up by 20 USD below 10."""
    world.acme.auto_top_up_enabled, world.acme.auto_top_up_amount = True, Decimal(20)
    world.acme.save()
    return world.acme


def later(**by: float) -> None:
    """Let the time of waiting pass."""
    BillingAccount.objects.filter(next_top_up_at__isnull=False).update(
        next_top_up_at=timezone.now() - timedelta(seconds=1) + timedelta(**by)
    )


def test_credits_below_the_threshold_are_topped_up_once(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme)
    ledger.grant(acme.id, Decimal("9.99"), "a start")
    for _ in range(3):
        tasks.top_up_automatically()
    assert books(acme) == (Decimal("29.99"), [("credit_gift", "9.99", "completed"), *PAID])
    assert stripe.paid() == [2000]
    assert stripe.of_kind("payment_intent")[0]["off_session"] == "true"
    row = Transaction.objects.get(type="credit_topup")
    assert (row.is_automatic, row.description) == (True, "Automatic top-up, visa 4242")
    assert AuditEntry.objects.get(action="top_up.create").details == {"amount": "20", "auto": True}
    assert mail.outbox == []


def test_at_the_threshold_nothing_is_charged(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme)
    ledger.grant(acme.id, Decimal(10), "enough")
    tasks.top_up_automatically()
    assert stripe.paid() == []


@pytest.mark.parametrize("why", ["turned off", "no card", "deleted", "inactive"])
def test_who_cannot_be_charged_is_not(acme: Any, stripe: StripeStub, why: str) -> None:
    if why != "no card":
        add_card(stripe, acme)
    if why == "turned off":
        acme.auto_top_up_enabled = False
    if why in ("deleted", "inactive"):
        acme.status = why
    acme.save()
    tasks.top_up_automatically()
    assert auto_topup.begin(acme.id) is None
    assert (stripe.paid(), books(acme)) == ([], (Decimal(0), []))


@pytest.mark.parametrize(
    ("wanted", "charged"),
    [("10", "10"), ("10.000000000001", "10.01"), ("3", "5"), ("12345678", "10000"), ("19.99", "19.99")],
)
def test_whole_cents_within_the_bounds_are_charged(wanted: str, charged: str) -> None:
    assert auto_topup.amount_of(Decimal(wanted)) == Decimal(charged)


@pytest.mark.django_db(transaction=True)
def test_workers_at_once_charge_once(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme)
    start = Barrier(6)

    def work(_: int) -> None:
        start.wait()
        try:
            for _ in range(3):
                tasks.top_up_automatically()
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert (books(acme), stripe.paid()) == ((Decimal(20), PAID), [2000])


def test_a_charge_without_an_answer_is_not_followed_by_another(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme)
    stripe.lose("/v1/payment_intents", "answer")
    for _ in range(3):
        tasks.top_up_automatically()
    assert books(acme) == (Decimal(0), [("credit_topup", "20", "pending")])
    Transaction.objects.update(created_at=timezone.now() - timedelta(minutes=3))
    tasks.recover_payments()
    tasks.top_up_automatically()
    assert (books(acme), stripe.paid()) == ((Decimal(20), PAID), [2000])


def test_declines_are_waited_out_longer_each_time_and_then_it_is_turned_off(
    world: World, acme: Any, stripe: StripeStub
) -> None:
    join(acme, make_user("Olga"), Role.OWNER)
    acme.billing_email = "books@example.com"
    acme.save()
    add_card(stripe, acme, "declined")
    for declines, hours in ((1, 1), (2, 6)):
        tasks.top_up_automatically()
        tasks.top_up_automatically()
        account = BillingAccount.objects.get(organization=acme)
        assert account.top_up_declines == declines
        wait = account.next_top_up_at - timezone.now()
        assert timedelta(hours=hours, minutes=-1) < wait <= timedelta(hours=hours)
        assert Transaction.objects.count() == declines
        tasks.tell_owners()
        tasks.tell_owners()
        assert len(mail.outbox) == declines
        assert mail.outbox[-1].subject == "Automatic top-up of Acme was declined"
        later()
    tasks.top_up_automatically()
    later()
    tasks.top_up_automatically()
    acme.refresh_from_db()
    assert (acme.auto_top_up_enabled, Transaction.objects.count(), stripe.paid()) == (False, 3, [])
    tasks.tell_owners()
    [*_, message] = mail.outbox
    assert (len(mail.outbox), message.subject) == (3, "Automatic top-up of Acme was turned off")
    assert message.bcc == ["books@example.com", "olga@example.com", "olivia@example.com"]
    entry = AuditEntry.objects.filter(action="organization.update").get()
    assert (entry.actor_type, entry.details) == (
        "system",
        {"changes": {"auto_top_up_enabled": {"from": True, "to": False}}},
    )
    # Turned on again it begins with a clean slate.
    acme.auto_top_up_enabled = True
    acme.save()
    tasks.top_up_automatically()
    assert BillingAccount.objects.get().top_up_declines == 1
    assert Transaction.objects.count() == 4


def test_another_card_is_tried_at_once(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme, "declined")
    tasks.top_up_automatically()
    add_card(stripe, acme, number="1111").organization.payment_methods.filter(last_four="4242").update(is_default=False)
    acme.payment_methods.filter(last_four="1111").update(is_default=True)
    tasks.top_up_automatically()
    assert books(acme) == (Decimal(20), [("credit_topup", "20", "failed"), *PAID])
    assert BillingAccount.objects.get().top_up_declines == 0


def test_a_card_that_asks_for_its_holder_counts_as_declined(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme, "asks")
    tasks.top_up_automatically()
    assert books(acme) == (Decimal(0), [("credit_topup", "20", "failed")])
    assert BillingAccount.objects.get().top_up_declines == 1


def test_one_that_cannot_be_charged_holds_up_no_other(world: World, acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme)
    world.elsewhere.auto_top_up_enabled, world.elsewhere.auto_top_up_amount = True, Decimal(30)
    world.elsewhere.save()
    add_card(stripe, world.elsewhere)
    stripe.lose("/v1/payment_intents", "request")
    tasks.top_up_automatically()
    assert sorted((books(acme)[0], books(world.elsewhere)[0])) == [Decimal(0), Decimal(30)]


def test_mail_that_cannot_be_sent_is_sent_later(acme: Any, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch) -> None:
    add_card(stripe, acme, "declined")
    tasks.top_up_automatically()

    def refuse(*_: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(mail.EmailMessage, "send", refuse)
        assert payment_emails.tell_owners() == 0
    assert payment_emails.tell_owners() == 1
    assert len(mail.outbox) == 1


def test_without_a_processor_nothing_is_asked(acme: Any, stripe: StripeStub, settings: Any) -> None:
    add_card(stripe, acme)
    settings.STRIPE_SECRET_KEY = ""
    tasks.top_up_automatically()
    tasks.recover_payments()
    tasks.sync_subscriptions()
    assert (payment_processor.is_on(), books(acme)) == (False, (Decimal(0), []))


def test_a_payment_ends_the_count_of_declines_where_it_was_automatic(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme)
    before = timezone.now() - timedelta(seconds=1)

    def state() -> tuple[int, Any]:
        account = BillingAccount.objects.get()
        return account.top_up_declines, account.next_top_up_at

    BillingAccount.objects.update(top_up_declines=2, next_top_up_at=before)
    topup.pay(topup.begin(acme, Decimal(5)))
    assert state() == (2, before)
    tasks.top_up_automatically()
    assert (books(acme)[0], state()) == (Decimal(25), (0, None))


def test_a_decline_of_a_payment_that_an_owner_made_is_not_counted(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme, "declined")
    topup.pay(topup.begin(acme, Decimal(5)))
    account = BillingAccount.objects.get()
    assert (account.top_up_declines, account.next_top_up_at, account.notice) == (0, None, "")


def test_none_is_begun_beside_one_that_is_pending(acme: Any, stripe: StripeStub) -> None:
    add_card(stripe, acme)
    # An owner's own is no reason to wait.
    topup.begin(acme, Decimal(5))
    row = auto_topup.begin(acme.id)
    assert row is not None
    assert (row.amount, row.credit_amount, row.is_automatic, row.status) == (Decimal(20), Decimal(20), True, "pending")
    assert auto_topup.begin(acme.id) is None
    assert Transaction.objects.count() == 2
