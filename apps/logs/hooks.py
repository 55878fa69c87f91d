"""Hooks of organizations: the erasure of the log, the end of a member's saved views, and the daily tokens of a
provider."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from apps.kernel.postgres.rows import delete_in_pieces
from apps.logs import archive, traffic
from apps.logs.models import ActivityDay, ActivityDelta, RefusedHour, RequestLog, SavedView

# Rows removed by one statement: small enough not to block others.
BATCH = 5_000


def erase(organization_id: UUID) -> None:
    """Delete all requests, daily sums and saved views; the ledger keeps the charges."""
    rows = RequestLog.objects.filter(organization_id=organization_id)
    while ids := list(rows.order_by("created_at").values_list("id", flat=True)[:BATCH]):
        rows.filter(id__in=ids).delete()
    archive.erase(organization_id)
    delete_in_pieces(SavedView.objects.filter(organization=organization_id))
    delete_in_pieces(RefusedHour.objects.filter(organization_id=organization_id))
    # In the order of a fold, so that no row slips through between the two.
    delete_in_pieces(ActivityDelta.objects.filter(organization_id=organization_id))
    delete_in_pieces(ActivityDay.objects.filter(organization_id=organization_id))
    traffic.erase(organization_id)


def find_daily_tokens(organization_id: UUID, provider: str, first: date, before: date) -> list[tuple[str, date, int]]:
    """Return the tokens of an organization's requests to a provider by model and day, from `first` to the day before
    `before`."""
    rows = ActivityDay.objects.filter(
        organization_id=organization_id,
        project_id=ActivityDay.EVERY,
        api_key_id=ActivityDay.EVERY,
        provider=provider,
        date__gte=first,
        date__lt=before,
    )
    return [
        (model, day, read + written)
        for model, day, read, written in rows.values_list("model", "date", "input_tokens", "output_tokens")
    ]


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """Delete a member's saved views in an organization, shared ones too; return 0: none is a key."""
    SavedView.objects.filter(organization=organization_id, created_by=user_id).delete()
    return 0
