"""Top-ups: a pending row, then the charge under the row's id, then completion and credits in one transaction.

If a process dies in between, `recover` completes the row: it stores the exact request, which the processor executes
once per key. The outcome comes from the processor, by the charge itself, by an event, or by a later lookup. The
processor is never called inside a transaction, and only confirmed payments are credited.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import structlog
from django.db import transaction
from django.utils import timezone

from apps.billing import auto_topup, ledger, payment_processor
from apps.billing.accounts import account_of, locked_account, locked_transaction
from apps.billing.cards import default_card, refuse_card_testing
from apps.billing.models import Transaction
from apps.billing.payment_processor_types import Payment, ProcessorAway, Refused
from apps.kernel.errors import InvalidRequest, PaymentRequired
from apps.kernel.ids import find_id
from apps.organizations.journal import audit
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

# How long an attempt is repeated unchanged; later it is only looked up.
FRESH = timedelta(hours=1)
# How long a cardholder may take to confirm.
CONFIRMING = timedelta(hours=23)
MAX_DESCRIPTION = 500


class TopUpResult(NamedTuple):
    """The state of a top-up; `client_secret` is set if the cardholder has to confirm."""

    transaction: Transaction
    client_secret: str = ""


def begin(organization: Organization, amount: Decimal, request_key: str | None = None) -> Transaction:
    """Create the pending payment of `amount` USD; a repeated request returns the same row.

    Raises InvalidRequest without a card, and (422) if `request_key` was used for another amount; RateLimited.
    """
    card = default_card(organization)
    if card is None:
        raise InvalidRequest("There is no payment method; add one first", code="no_payment_method")
    fields = {
        "organization": organization,
        "type": Transaction.Type.CREDIT_TOPUP,
        "amount": amount,
        "credit_amount": amount,
        "description": f"Top-up, {card}".strip(),
        "processor_payment_method_id": card.processor_payment_method_id,
    }
    if request_key is None or not Transaction.objects.filter(request_key=request_key).exists():
        refuse_card_testing(organization)
    with transaction.atomic():
        if request_key is None:
            row, created = Transaction.objects.create(**fields), True
        else:
            row, created = Transaction.objects.get_or_create(request_key=request_key, defaults=fields)
        if created:
            audit.record("top_up.create", organization_id=organization.id, resource=row, details={"amount": amount})
    if (row.organization_id, row.amount) != (organization.id, amount):
        raise InvalidRequest(
            "This Idempotency-Key was used for another request; use a new one",
            status=422,
            code="idempotency_key_reused",
        )
    return row


def pay(row: Transaction) -> TopUpResult:
    """Charge for a row, once however often it is called; return its new state.

    It stays pending if the processor did not answer. A declined payment becomes failed and raises nothing.
    """
    if row.status != Transaction.Status.PENDING:
        return TopUpResult(row)
    account = account_of(row.organization_id)
    try:
        payment = payment_processor.charge(
            key=str(row.id),
            customer=account.processor_customer_id or "",
            card=row.processor_payment_method_id or "",
            amount=row.amount,
            metadata={"transaction": str(row.id), "organization": str(row.organization_id)},
            holder_is_here=not row.is_automatic,
        )
        return sync(row, payment)
    except Refused as refusal:
        return TopUpResult(_fail(row.id, refusal.message))
    except ProcessorAway:
        return TopUpResult(row)


def require_paid(attempt: TopUpResult) -> None:
    """Raise PaymentRequired for a top-up that was declined."""
    if attempt.transaction.status == Transaction.Status.FAILED:
        raise PaymentRequired(attempt.transaction.description, code="card_declined")


def open_confirmation(row: Transaction, return_to: str) -> str | None:
    """Return the address of the bank's page where the cardholder confirms a pending payment, and which leads back.

    None if nothing needs confirmation: `recover` finds the outcome. Raises ProcessorAway, Refused.
    """
    if row.status != Transaction.Status.PENDING or row.is_automatic or not row.processor_payment_intent_id:
        return None
    return payment_processor.open_confirmation(row.processor_payment_intent_id, return_to)


def recover(row: Transaction) -> Transaction:
    """Look up the outcome of a pending row. Raises ProcessorAway, Refused."""
    if row.processor_payment_intent_id:
        return sync(row, payment_processor.payment(row.processor_payment_intent_id)).transaction
    if row.created_at > timezone.now() - FRESH:
        return pay(row).transaction
    customer = account_of(row.organization_id).processor_customer_id
    payment = payment_processor.find_payment(customer, str(row.id), row.created_at) if customer else None
    if payment is None:
        return _fail(row.id, "the payment processor was not reached")
    return sync(row, payment).transaction


def sync(row: Transaction, payment: Payment) -> TopUpResult:
    """Apply the processor's state of a row's payment. Raises ProcessorAway, Refused.

    A payment that differs from the request changes nothing. A payment that failed, or will never be confirmed, is first
    cancelled at the processor, so that a row that failed here can no longer be paid.
    """
    customer = account_of(row.organization_id).processor_customer_id
    asked = (str(row.id), row.amount, row.currency, customer)
    if (payment.transaction, payment.amount, payment.currency, payment.customer) != asked:
        log.error("payment.differs", transaction=str(row.id), payment=payment.id)
        return TopUpResult(row)
    if payment.status == "failed" or (payment.status == "requires_action" and _is_abandoned(row)):
        payment_processor.cancel_payment(payment.id)
        problem, payment = payment.problem, payment_processor.payment(payment.id)
        if payment.status == "failed":
            return TopUpResult(_fail(row.id, problem or "the payment was not confirmed", payment.id))
    if payment.status == "succeeded":
        return TopUpResult(_complete(row.id, payment.id))
    changed = _note(row.id, payment.id)
    return TopUpResult(changed, payment.client_secret if payment.status == "requires_action" else "")


def find_row(payment: Payment) -> Transaction | None:
    """Return the top-up of a payment, if it is one of ours."""
    rows = Transaction.objects.filter(type=Transaction.Type.CREDIT_TOPUP)
    identifier = find_id(payment.transaction)
    return rows.filter(pk=identifier).first() if identifier else None


def _is_abandoned(row: Transaction) -> bool:
    return row.is_automatic or row.created_at < timezone.now() - CONFIRMING


@transaction.atomic
def _complete(row_id: UUID, payment_id: str) -> Transaction:
    """Complete and credit, once. A payment is credited even if its row had failed."""
    row = locked_transaction(row_id)
    if row.status == Transaction.Status.COMPLETED:
        return row
    row.status, row.processor_payment_intent_id = Transaction.Status.COMPLETED, payment_id
    row.save(update_fields=["status", "processor_payment_intent_id", "updated_at"])
    ledger.credit(row)
    if row.is_automatic:
        account = locked_account(row.organization_id)
        auto_topup.succeeded(account)
        account.save()
    audit.record(
        "top_up.complete", organization_id=row.organization_id, resource=row, details={"credits": row.credit_amount}
    )
    return row


@transaction.atomic
def _fail(row_id: UUID, reason: str, payment_id: str | None = None) -> Transaction:
    """Mark a pending row as failed; nothing was paid."""
    row = locked_transaction(row_id)
    if row.status != Transaction.Status.PENDING:
        return row
    row.status = Transaction.Status.FAILED
    row.description = f"{row.description}: {reason}"[:MAX_DESCRIPTION]
    row.processor_payment_intent_id = payment_id or row.processor_payment_intent_id
    row.save(update_fields=["status", "description", "processor_payment_intent_id", "updated_at"])
    audit.record("top_up.fail", organization_id=row.organization_id, resource=row, details={"reason": reason})
    if row.is_automatic:
        account = locked_account(row.organization_id)
        auto_topup.declined(account)
        account.save()
    return row


@transaction.atomic
def _note(row_id: UUID, payment_id: str) -> Transaction:
    """Store the id of a row's pending payment."""
    row = locked_transaction(row_id)
    if row.status == Transaction.Status.PENDING:
        row.processor_payment_intent_id = payment_id
        row.save(update_fields=["processor_payment_intent_id", "updated_at"])
    return row
