"""Erasure of a deleted organization's payment data: the ledger stays, cards and discounts go."""

from __future__ import annotations

from uuid import UUID

from apps.billing.models import Discount, PaymentMethod


def erase(organization_id: UUID) -> None:
    """Remove how it paid, and at which discount."""
    PaymentMethod.objects.filter(organization=organization_id).delete()
    Discount.objects.filter(organization=organization_id).delete()
