"""Erasure of the log of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.kernel.postgres.deletion import delete_in_pieces
from apps.logs import archiving, traffic
from apps.logs.models import ActivityDay, ActivityDelta, RefusedHour, RequestLog, SavedView

# Rows removed by one statement: small enough not to block others.
BATCH = 5_000


def erase(organization_id: UUID) -> None:
    """Delete all requests, daily sums and saved views; the ledger keeps the charges."""
    rows = RequestLog.objects.filter(organization_id=organization_id)
    while ids := list(rows.order_by("created_at").values_list("id", flat=True)[:BATCH]):
        rows.filter(id__in=ids).delete()
    archiving.erase(organization_id)
    delete_in_pieces(SavedView.objects.filter(organization=organization_id))
    delete_in_pieces(RefusedHour.objects.filter(organization_id=organization_id))
    # In the order of a fold, so that no row slips through between the two.
    delete_in_pieces(ActivityDelta.objects.filter(organization_id=organization_id))
    delete_in_pieces(ActivityDay.objects.filter(organization_id=organization_id))
    traffic.erase(organization_id)
