"""Refunds: a pending row, then the refund under the row's id, then completion and credits in one transaction.

An operator starts a refund; one made at the processor is found there and recorded. Credits fall by exactly the refunded
amount, and the balance may become negative. Refunds never exceed the payment.
"""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone

from apps.billing import ledger, payment_processor
from apps.billing.accounts import locked_account, locked_transaction
from apps.billing.models import Transaction
from apps.billing.payment_processor_types import ProcessorAway, Refund, Refused
from apps.billing.topup import FRESH, MAX_DESCRIPTION
from apps.kernel.errors import InvalidRequest
from apps.kernel.ids import find_id
from apps.organizations.journal import audit

log = structlog.get_logger(__name__)
_CENT = Decimal("0.01")


def refundable(payment: Transaction) -> Decimal:
    """Return how much of a top-up (USD) is neither refunded nor pending."""
    if payment.type != Transaction.Type.CREDIT_TOPUP or payment.status != Transaction.Status.COMPLETED:
        return Decimal(0)
    given = _refunds(payment).exclude(status=Transaction.Status.FAILED).aggregate(total=Sum("amount"))["total"]
    left: Decimal = payment.amount - (given or 0)
    return max(left, Decimal(0))


def begin(payment: Transaction, amount: Decimal, reason: str) -> Transaction:
    """Create the pending refund of `amount` USD. Raises InvalidRequest for more than is left."""
    with transaction.atomic():
        locked_account(payment.organization_id)
        payment = Transaction.objects.select_for_update(no_key=True).get(pk=payment.pk)
        left = refundable(payment)
        if not (amount.is_finite() and _CENT <= amount <= left and amount == amount.quantize(_CENT)):
            raise InvalidRequest(f"The amount must be from 0.01 to {left:.2f} USD, in whole cents", param="amount")
        row = _create(payment, amount, reason)
        audit.record("refund.create", organization_id=row.organization_id, resource=row, details=_details_of(row))
    return row


def pay(row: Transaction) -> Transaction:
    """Make a row's refund, once however often it is called; it stays pending if the processor did not answer."""
    payment = row.related_transaction
    if row.status != Transaction.Status.PENDING or payment is None:
        return row
    try:
        made = payment_processor.refund(
            key=str(row.id),
            payment=payment.processor_payment_intent_id or "",
            amount=row.amount,
            metadata={"transaction": str(row.id)},
        )
    except Refused as refusal:
        return _fail(row.id, refusal.message)
    except ProcessorAway:
        return row
    return _take_over(row, made)


def recover(row: Transaction) -> Transaction:
    """Look up the outcome of a pending refund. Raises ProcessorAway, Refused."""
    payment = row.related_transaction
    if payment is None or not payment.processor_payment_intent_id:
        return row
    for made in payment_processor.refunds_of(payment.processor_payment_intent_id):
        if made.transaction == str(row.id):
            return _take_over(row, made)
    if row.created_at > timezone.now() - FRESH:
        return pay(row)
    return _fail(row.id, "the payment processor was not reached")


def sync(payment_id: str) -> None:
    """Record every refund of a payment, also those made elsewhere, after an event about one.

    Raises ProcessorAway, Refused.
    """
    payment = Transaction.objects.filter(
        type=Transaction.Type.CREDIT_TOPUP, status=Transaction.Status.COMPLETED, processor_payment_intent_id=payment_id
    ).first()
    if payment is None:
        return
    for made in payment_processor.refunds_of(payment_id):
        row = _refunds(payment).filter(processor_refund_id=made.id).first()
        row = row or _refunds(payment).filter(pk__in=[find_id(made.transaction)]).first()
        if row is None and made.status == "succeeded":
            row = _adopt(payment, made)
        if row is not None:
            _take_over(row, made)


def _refunds(payment: Transaction) -> QuerySet[Transaction]:
    return Transaction.objects.filter(type=Transaction.Type.CREDIT_REFUND, related_transaction=payment)


def _create(payment: Transaction, amount: Decimal, reason: str, refund_id: str | None = None) -> Transaction:
    return Transaction.objects.create(
        organization_id=payment.organization_id,
        type=Transaction.Type.CREDIT_REFUND,
        amount=amount,
        credit_amount=-amount,
        currency=payment.currency,
        description=f"Refund of {payment.description}"[:MAX_DESCRIPTION],
        related_transaction=payment,
        refund_reason=reason,
        processor_payment_intent_id=payment.processor_payment_intent_id,
        processor_refund_id=refund_id,
    )


def _adopt(payment: Transaction, made: Refund) -> Transaction:
    """Return the row of a refund made at the processor."""
    with transaction.atomic():
        locked_account(payment.organization_id)
        row = _refunds(payment).filter(processor_refund_id=made.id).first()
        return row or _create(payment, made.amount, "Refunded at the payment processor", made.id)


def _take_over(row: Transaction, made: Refund) -> Transaction:
    if (made.amount, made.currency) != (row.amount, row.currency):
        log.error("refund.differs", transaction=str(row.id), refund=made.id)
        return row
    if made.status == "succeeded":
        return _complete(row.id, made.id)
    if made.status in ("failed", "canceled"):
        return _fail(row.id, "the refund failed", made.id)
    return row


@transaction.atomic
def _complete(row_id: UUID, refund_id: str) -> Transaction:
    row = locked_transaction(row_id)
    if row.status == Transaction.Status.COMPLETED:
        return row
    row.status, row.processor_refund_id = Transaction.Status.COMPLETED, refund_id
    row.save(update_fields=["status", "processor_refund_id", "updated_at"])
    ledger.credit(row)
    audit.record("refund.complete", organization_id=row.organization_id, resource=row, details=_details_of(row))
    return row


@transaction.atomic
def _fail(row_id: UUID, reason: str, refund_id: str | None = None) -> Transaction:
    row = locked_transaction(row_id)
    if row.status == Transaction.Status.COMPLETED:
        # The bank returned the refund: an operator has to look at it.
        log.error("refund.failed_late", transaction=str(row.id), refund=refund_id)
    if row.status != Transaction.Status.PENDING:
        return row
    row.status, row.processor_refund_id = Transaction.Status.FAILED, refund_id
    row.description = f"{row.description}: {reason}"[:MAX_DESCRIPTION]
    row.save(update_fields=["status", "processor_refund_id", "description", "updated_at"])
    audit.record("refund.fail", organization_id=row.organization_id, resource=row, details={"reason": reason})
    return row


def _details_of(row: Transaction) -> dict[str, object]:
    return {"amount": row.amount, "reason": row.refund_reason, "topUp": row.related_transaction_id}
