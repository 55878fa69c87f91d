"""The pro plan's subscription: started and cancelled here, otherwise in the state that the payment processor reports.

`sync` applies every change (renewal, failed payment, end) by fetching the current state, so events may come late,
twice, in any order, or not at all. An event's own content is never used. A deleted organization's subscription,
customer and cards are ended there; an account with a payment in progress stays until its outcome is known.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from apps.billing import payment_processor
from apps.billing.accounts import account_of, locked_account
from apps.billing.cards import default_card, refuse_card_testing
from apps.billing.models import BillingAccount, Transaction
from apps.billing.payment_processor_types import (
    Missing,
    PaidInvoice,
    ProcessorAway,
    ProcessorOff,
    Refused,
    Subscription,
)
from apps.billing.topup import FRESH, MAX_DESCRIPTION
from apps.kernel.errors import InvalidRequest, NotFound, PaymentRequired
from apps.kernel.ids import find_id
from apps.organizations import actions
from apps.organizations.journal import audit
from apps.organizations.models import Organization, Plan

log = structlog.get_logger(__name__)

# USD a month (specification, section 8).
PRICE = Decimal(49)
# The processor's statuses for a subscription that gives the plan.
PAID, UNPAID = frozenset({"active", "trialing"}), "past_due"
_GIVING = PAID | {UNPAID}
# Grace period of the plan after a failed renewal.
GRACE = timedelta(days=7)
_TRIES = 3
NO_SUBSCRIPTION = "There is no subscription"


def start(organization: Organization, request_key: str | None = None) -> Transaction | None:
    """Start the pro plan, or resume a cancelled one that has not ended; return the row of the payment.

    A repeated request returns the same row. It stays pending if the processor did not answer. Raises InvalidRequest
    (409) if there is nothing to start, PaymentRequired for a decline, ProcessorOff, ProcessorAway.
    """
    payment_processor.require()
    if not settings.STRIPE_PRO_PRICE:
        raise ProcessorOff
    account = account_of(organization.id)
    if account.subscription_status and account.cancels_at_period_end and account.subscription_id:
        payment_processor.cancel_at_period_end(account.subscription_id, cancels=False)
        sync(account)
        return None
    row = pay(_begin(organization, request_key))
    if row.status == Transaction.Status.FAILED:
        raise PaymentRequired(row.description, code="card_declined")
    return row


def pay(row: Transaction) -> Transaction:
    """Subscribe for a pending row, once however often it is called; return the row's new state."""
    if row.status != Transaction.Status.PENDING:
        return row
    account = account_of(row.organization_id)
    try:
        made = payment_processor.subscribe(
            key=str(row.id),
            customer=account.processor_customer_id or "",
            metadata={"transaction": str(row.id), "organization": str(row.organization_id)},
        )
    except Refused as refusal:
        _fail(row.id, refusal.message)
    except ProcessorAway:
        pass  # `recover` finds out.
    else:
        with suppress(ProcessorAway, Refused):  # Likewise.
            _settle(row, account, [made])
    row.refresh_from_db()
    return row


def recover(row: Transaction) -> None:
    """Look up the outcome of a pending subscription. Raises ProcessorAway, Refused."""
    if row.created_at > timezone.now() - FRESH:
        pay(row)
        return
    account = account_of(row.organization_id)
    _settle(row, account, _found(account))


def cancel(organization: Organization) -> None:
    """Cancel the subscription at the end of the paid period. Raises NotFound, ProcessorAway, ProcessorOff."""
    account = account_of(organization.id)
    if not account.subscription_status or not account.subscription_id:
        raise NotFound(NO_SUBSCRIPTION)
    payment_processor.cancel_at_period_end(account.subscription_id, cancels=True)
    sync(account)


def refresh(account: BillingAccount) -> None:
    """Check a subscription by time, and end one whose renewal was not paid within the grace period.

    Raises ProcessorAway, Refused.
    """
    sync(account)
    account = BillingAccount.objects.select_related("organization").get(pk=account.pk)
    paid_until = account.organization.plan_expires_at
    overdue = paid_until is not None and paid_until + GRACE < timezone.now()
    if account.subscription_status == UNPAID and overdue and account.subscription_id:
        payment_processor.end_subscription(account.subscription_id)
        sync(account)


def sync(account: BillingAccount) -> None:
    """Apply the current state of an organization's subscription. Raises ProcessorAway, Refused."""
    for _ in range(_TRIES):
        found = _find(account)
        invoices = payment_processor.paid_invoices(found.id) if found else []
        if _take_over(account, found, invoices):
            return
        account = account_of(account.organization_id)
    log.warning("subscription.not_taken_over", organization=str(account.organization_id))


def _settle(row: Transaction, account: BillingAccount, found: list[Subscription]) -> None:
    """Apply the outcome of a row; if its subscription is not live, fail the row and end the subscription."""
    sync(account)
    row.refresh_from_db()
    begun = [one for one in found if one.transaction == str(row.id)]
    if row.status != Transaction.Status.PENDING or any(one.status in _GIVING for one in begun):
        return
    for one in begun:
        payment_processor.end_subscription(one.id)
    _fail(row.id, "the payment was not made")


def _found(account: BillingAccount) -> list[Subscription]:
    """Return a customer's subscriptions of ours: at the pro plan's price, or the known one."""
    if account.processor_customer_id is None:
        return []
    known = account.subscription_id
    every = payment_processor.subscriptions_of(account.processor_customer_id)
    return [one for one in every if one.id == known or (one.price == settings.STRIPE_PRO_PRICE and one.transaction)]


def _find(account: BillingAccount) -> Subscription | None:
    """Return the relevant subscription: one that gives the plan, else the known one."""
    candidates = _found(account)
    for one in candidates:
        if one.status in _GIVING:
            return one
    if account.subscription_id is None:
        return None
    with suppress(Missing):
        return payment_processor.subscription(account.subscription_id)
    return None


def _take_over(account: BillingAccount, found: Subscription | None, invoices: list[PaidInvoice]) -> bool:
    """Apply the found state to rows, account and plan; False if another process did meanwhile."""
    with transaction.atomic():
        current = locked_account(account.organization_id)
        if current.revision != account.revision:
            return False
        current.revision += 1
        if found is not None:
            for invoice in invoices:
                _book(current, found, invoice)
        if found is not None and found.status in PAID:
            _go_on(current, found)
        elif found is not None and found.status == UNPAID:
            if current.subscription_status != UNPAID:
                current.notice = BillingAccount.Notice.SUBSCRIPTION_UNPAID
            current.subscription_id, current.subscription_status = found.id, UNPAID
            _note_cancelling(current, found)
        elif current.subscription_status:
            _end(current)
        current.save()
    return True


def _go_on(account: BillingAccount, found: Subscription) -> None:
    """Extend the plan to the end of the paid period. A higher plan stays."""
    if (begun := _begun(account, found)) is not None:  # There was nothing to pay yet.
        begun.amount, begun.status = Decimal(0), Transaction.Status.COMPLETED
        begun.save(update_fields=["amount", "status", "updated_at"])
    account.subscription_id, account.subscription_status = found.id, found.status
    _note_cancelling(account, found)
    organization = Organization.objects.get(pk=account.organization_id)
    changes = {"plan": Plan.PRO, "plan_expires_at": found.period_ends_at}
    if organization.plan in (Plan.FREE, Plan.PRO):
        _change(organization, changes)


def _note_cancelling(account: BillingAccount, found: Subscription) -> None:
    if found.cancels_at_period_end and not account.cancels_at_period_end:
        until = f"{found.period_ends_at:%Y-%m-%d}"
        _write(account, Transaction.Type.SUBSCRIPTION_CANCEL, f"Pro plan, cancelled; it ends on {until}")
    if account.cancels_at_period_end and not found.cancels_at_period_end:
        audit.record("subscription.resume", organization_id=account.organization_id, resource=account)
    account.cancels_at_period_end = found.cancels_at_period_end


def _end(account: BillingAccount) -> None:
    account.subscription_status, account.cancels_at_period_end = "", False
    account.notice = BillingAccount.Notice.SUBSCRIPTION_ENDED
    _write(account, Transaction.Type.SUBSCRIPTION_END, "Pro plan, ended")
    organization = Organization.objects.get(pk=account.organization_id)
    if organization.plan == Plan.PRO:
        _change(organization, {"plan": Plan.FREE, "plan_expires_at": None})


def _change(organization: Organization, changes: dict[str, object]) -> None:
    if all(getattr(organization, name) == value for name, value in changes.items()):
        return
    with suppress(NotFound):  # Deleted: nothing is left to be on a plan.
        actions.change_organization(organization=organization, changes=changes)


def _book(account: BillingAccount, found: Subscription, invoice: PaidInvoice) -> None:
    """Record a paid invoice once: the first one completes the initial row."""
    rows = Transaction.objects.filter(organization=account.organization_id, type=Transaction.Type.SUBSCRIPTION_START)
    if rows.filter(processor_invoice_id=invoice.id).exists():
        return
    row = _begun(account, found) or Transaction(
        organization_id=account.organization_id,
        type=Transaction.Type.SUBSCRIPTION_START,
        description="Pro plan, renewed",
    )
    row.amount, row.currency, row.processor_invoice_id = invoice.amount, invoice.currency, invoice.id
    row.status = Transaction.Status.COMPLETED
    row.save()
    details = {"amount": invoice.amount, "invoice": invoice.id}
    audit.record("subscription.pay", organization_id=account.organization_id, resource=row, details=details)


def _begun(account: BillingAccount, found: Subscription) -> Transaction | None:
    """Return the initial row of a subscription unless it is completed."""
    rows = Transaction.objects.filter(organization=account.organization_id, pk__in=[find_id(found.transaction)])
    return rows.filter(type=Transaction.Type.SUBSCRIPTION_START).exclude(status=Transaction.Status.COMPLETED).first()


def _write(account: BillingAccount, kind: Transaction.Type, description: str) -> None:
    row = Transaction.objects.create(
        organization_id=account.organization_id,
        type=kind,
        amount=Decimal(0),
        status=Transaction.Status.COMPLETED,
        description=description,
    )
    verb = kind.value.removeprefix("subscription_")
    audit.record(f"subscription.{verb}", organization_id=account.organization_id, resource=row)


def _begin(organization: Organization, request_key: str | None) -> Transaction:
    """Return the row of a new subscription: the request's own, or the pending one. Raises InvalidRequest."""
    kind = Transaction.Type.SUBSCRIPTION_START
    rows = Transaction.objects.filter(organization=organization, type=kind)
    with transaction.atomic():
        account = locked_account(organization.id)
        row = rows.filter(request_key=request_key).first() if request_key else None
        row = row or rows.filter(status=Transaction.Status.PENDING).first()
        if row is not None:
            return row
        refuse_card_testing(organization)
        plan = Organization.objects.values_list("plan", flat=True).get(pk=organization.pk)
        if account.subscription_status or plan != Plan.FREE:
            raise InvalidRequest(f"The organization is already on the plan {plan}", status=409, code="on_plan")
        if default_card(organization) is None:
            raise InvalidRequest("There is no payment method; add one first", code="no_payment_method")
        row = Transaction.objects.create(
            organization=organization, type=kind, amount=PRICE, description="Pro plan", request_key=request_key
        )
        audit.record("subscription.create", organization_id=organization.id, resource=row, details={"amount": PRICE})
    return row


@transaction.atomic
def _fail(row_id: UUID, reason: str) -> None:
    row = Transaction.objects.select_for_update(no_key=True).get(pk=row_id)
    if row.status == Transaction.Status.PENDING:
        row.status = Transaction.Status.FAILED
        row.description = f"{row.description}: {reason}"[:MAX_DESCRIPTION]
        row.save(update_fields=["status", "description", "updated_at"])
        audit.record("subscription.fail", organization_id=row.organization_id, resource=row, details={"reason": reason})


def accounts_to_cancel() -> QuerySet[BillingAccount]:
    """Return the accounts with a subscription that would renew although their organization will be deleted."""
    rows = BillingAccount.objects.exclude(subscription_status="").filter(subscription_id__isnull=False)
    rows = rows.filter(cancels_at_period_end=False, organization__status=Organization.Status.DELETING)
    return rows.select_related("organization")


def cancel_before_deletion(account: BillingAccount) -> None:
    """Cancel the subscription of an organization that will be deleted. Raises ProcessorAway, ProcessorOff."""
    with suppress(NotFound):  # It has ended meanwhile.
        cancel(account.organization)


def accounts_to_close() -> QuerySet[BillingAccount]:
    """Return the accounts to close."""
    pending = Transaction.objects.filter(organization=OuterRef("organization"), status=Transaction.Status.PENDING)
    rows = BillingAccount.objects.filter(
        ~Exists(pending), organization__status=Organization.Status.DELETED, processor_customer_id__isnull=False
    )
    return rows.select_related("organization")


def close_account(account: BillingAccount) -> None:
    """End the subscription and delete customer and cards there. Raises ProcessorAway, Refused."""
    if account.subscription_id and account.subscription_status:
        payment_processor.end_subscription(account.subscription_id)
        sync(account)
    payment_processor.delete_customer(str(account.processor_customer_id))
    with transaction.atomic():
        account = locked_account(account.organization_id)
        account.processor_customer_id, account.notice = None, ""
        account.save(update_fields=["processor_customer_id", "notice", "updated_at"])
