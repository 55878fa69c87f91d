"""Celery tasks of billing. Each may run twice, and concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import structlog
from celery import shared_task
from django.db import DatabaseError
from django.db.models import Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.billing import auto_topup, gifts, payment_emails, payment_processor, refunds, subscription, topup, webhooks
from apps.billing.models import BillingAccount, Transaction
from apps.billing.payment_processor_types import ProcessorAway, ProcessorOff, Refused

log = structlog.get_logger(__name__)
Thing = TypeVar("Thing")
# Time that the starter of a payment has to finish it.
UNDER_WAY = timedelta(minutes=2)


@shared_task(name="billing.top_up_automatically", time_limit=600)
def top_up_automatically() -> None:
    """Charge organizations with low credits."""

    def charge(organization_id: UUID) -> None:
        row = auto_topup.begin(organization_id)
        if row is not None:
            topup.pay(row)

    _each("top_up.automatic", auto_topup.due() if payment_processor.is_on() else (), charge)


@shared_task(name="billing.recover_payments", time_limit=600)
def recover_payments() -> None:
    """Look up the outcome of unfinished payments."""
    recover: dict[str, Callable[[Transaction], object]] = {
        Transaction.Type.CREDIT_TOPUP: topup.recover,
        Transaction.Type.CREDIT_REFUND: refunds.recover,
        Transaction.Type.SUBSCRIPTION_START: subscription.recover,
    }
    rows = Transaction.objects.filter(
        # A top-up without a card was not begun with the processor.
        Q(processor_payment_method_id__isnull=False) | ~Q(type=Transaction.Type.CREDIT_TOPUP),
        status=Transaction.Status.PENDING,
        type__in=recover,
        created_at__lt=timezone.now() - UNDER_WAY,
    )
    _each(
        "payment.recovered",
        _in_turns(rows) if payment_processor.is_on() else (),
        lambda row: recover[row.type](row),
    )


@shared_task(name="billing.sync_subscriptions", time_limit=1800)
def sync_subscriptions() -> None:
    """Check subscriptions whose paid period is over, cancel those of organizations that will be deleted, and close the
    accounts of deleted organizations."""
    if not payment_processor.is_on():
        return
    living = BillingAccount.objects.exclude(subscription_status="").select_related("organization")
    over = Q(organization__plan_expires_at__lte=timezone.now()) | Q(subscription_status=subscription.UNPAID)
    _each("subscription.synced", living.filter(over), subscription.refresh)
    _each("subscription.cancelled", subscription.accounts_to_cancel(), subscription.cancel_before_deletion)
    _each("account.closed", subscription.accounts_to_close(), subscription.close_account)


@shared_task(name="billing.tell_owners", time_limit=600)
def tell_owners() -> None:
    """Send waiting e-mails."""
    log.info("owners.told", organizations=payment_emails.tell_owners())


@shared_task(name="billing.send_receipts", time_limit=600)
def send_receipts() -> None:
    """Send the e-mails about completed payments, and about cards that expire."""
    cards = payment_emails.tell_of_expiring_cards(timezone.now())
    log.info("receipts.sent", receipts=payment_emails.send_receipts(), cards=cards)


@shared_task(name="billing.pay_referrers", time_limit=1800)
def pay_referrers() -> None:
    """Pay referral rewards for complete days."""
    log.info("referrers.paid", payments=gifts.pay_referrers())


@shared_task(name="billing.sweep_processor_events", time_limit=600)
def sweep_processor_events() -> None:
    """Delete events that the processor will not repeat."""
    log.info("processor_events.swept", rows=webhooks.sweep())


def _in_turns(rows: QuerySet[Transaction]) -> QuerySet[Transaction]:
    """Return the rows in turns: the first of each organization before the second of any."""
    turn = Window(RowNumber(), partition_by="organization_id", order_by="id")
    return rows.annotate(turn=turn).order_by("turn", "id")


def _each(what: str, things: Iterable[Thing], act: Callable[[Thing], object]) -> None:
    """Run the action for each; a failure is logged and retried in the next run."""
    for one in things:
        try:
            act(one)
        except (ProcessorAway, ProcessorOff, Refused, DatabaseError) as error:
            log.warning(f"{what}_not", id=str(getattr(one, "pk", one)), error=type(error).__name__)
