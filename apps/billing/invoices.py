"""Invoices and receipts: one for each payment, numbered without gaps, never changed once issued.

An invoice is issued when it is first requested. It stores the details of both sides, so later changes of addresses
change no invoice.
"""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.db.models import Max

from apps.billing.models import Invoice, Transaction
from apps.kernel.errors import NotFound
from apps.kernel.ids import find_id
from apps.kernel.postgres.advisory_lock import AdvisoryLock, lock_in_transaction
from apps.organizations.models import Organization

NO_INVOICE = "There is no invoice for this transaction"
# Payments that have an invoice; a refund has a credit note.
INVOICED = frozenset(
    {Transaction.Type.CREDIT_TOPUP, Transaction.Type.SUBSCRIPTION_START, Transaction.Type.CREDIT_REFUND}
)


def has_invoice(row: Transaction) -> bool:
    """Return whether a transaction has an invoice: money was paid or refunded."""
    return row.status == Transaction.Status.COMPLETED and row.type in INVOICED and row.amount != 0


def find_paid(organization: Organization, transaction_id: str) -> Transaction:
    """Return an organization's transaction that has an invoice. Raises NotFound."""
    rows = Transaction.objects.filter(organization=organization, pk__in=[find_id(transaction_id)])
    row = rows.select_related("related_transaction").first()
    if row is None or not has_invoice(row):
        raise NotFound(NO_INVOICE)
    return row


def issue(row: Transaction) -> Invoice:
    """Return the invoice of a transaction, issuing it if needed. Raises NotFound if it cannot have one."""
    if not has_invoice(row):
        raise NotFound(NO_INVOICE)
    known = Invoice.objects.filter(transaction=row).first()
    if known is not None:
        return known
    with transaction.atomic():
        # One at a time, so that numbers have no gaps even after a rollback.
        lock_in_transaction(AdvisoryLock.ISSUE_INVOICE)
        known = Invoice.objects.filter(transaction=row).first()
        if known is not None:
            return known
        last = Invoice.objects.aggregate(last=Max("number"))["last"] or 0
        organization = row.organization
        return Invoice.objects.create(
            transaction=row,
            number=last + 1,
            issuer=_issuer(),
            recipient={
                "name": organization.billing_company or organization.name,
                "address": organization.billing_address or "",
                "email": organization.billing_email or "",
                "tax_id": organization.billing_tax_id or "",
            },
        )


def _issuer() -> dict[str, str]:
    return {
        "name": settings.INVOICE_ISSUER_NAME,
        "address": settings.INVOICE_ISSUER_ADDRESS,
        "email": settings.INVOICE_ISSUER_EMAIL,
        "tax_id": settings.INVOICE_ISSUER_TAX_ID,
    }
