"""Erasure of a deleted organization's payment data: the ledger and invoices stay, cards and discounts go."""

from __future__ import annotations

from uuid import UUID

from apps.billing.invoices import INVOICED, has_invoice, issue
from apps.billing.models import Discount, PaymentMethod, Transaction


def erase(organization_id: UUID) -> None:
    """issue the missing invoices, while the billing address is known; remove cards and discounts."""
    unissued = Transaction.objects.filter(organization=organization_id, invoice=None).select_related("organization")
    for row in unissued.filter(status=Transaction.Status.COMPLETED, type__in=INVOICED).order_by("created_at", "id"):
        if has_invoice(row):
            issue(row)
    PaymentMethod.objects.filter(organization=organization_id).delete()
    Discount.objects.filter(organization=organization_id).delete()
