"""Erasure of the limits of a deleted organization; counters and charges have no names, and go with them."""

from __future__ import annotations

from uuid import UUID

from apps.kernel.postgres.deletion import delete_in_pieces
from apps.limits.models import Limit, LimitCharge, LimitCounter


def erase(organization_id: UUID) -> None:
    """Delete all limits, counters and charges."""
    Limit.objects.filter(organization=organization_id).delete()
    delete_in_pieces(LimitCharge.objects.filter(organization_id=organization_id))
    delete_in_pieces(LimitCounter.objects.filter(organization_id=organization_id))
