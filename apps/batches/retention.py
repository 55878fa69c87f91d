"""Retention of files and batches: removed in batches once past their time, or beyond their organization's retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Model, QuerySet

from apps.batches import removal
from apps.batches.models import Batch, StoredFile, Upload
from apps.logs.retention import visible_to
from apps.organizations.models import Organization, RetentionLevel

# Rows found by one statement.
BATCH: Final = 20
# How long clients can see that an upload has expired.
_UPLOADS_TOLD_FOR: Final = timedelta(days=1)
_REMOVERS: Final[dict[type[Model], Callable[[list[str]], None]]] = {
    StoredFile: removal.remove_files,
    Batch: removal.remove_batches,
    Upload: removal.remove_uploads,
}


def purge(now: datetime) -> int:
    """Remove expired rows, and rows of organizations that no longer keep content; return how many.

    A run that is cut short is carried on by the next.
    """
    removed = _remove(StoredFile.objects.filter(expires_at__lte=now))
    removed += _remove(Batch.objects.filter(kept_until__lte=now))
    removed += _remove(Upload.objects.filter(expires_at__lte=now - _UPLOADS_TOLD_FOR))
    organizations = _organizations()
    # Rows in progress when an organization was deleted arrived after its erasure.
    keeping = Organization.objects.filter(id__in=organizations, retention_level=RetentionLevel.RETAIN)
    kept = set(keeping.exclude(status=Organization.Status.DELETED).values_list("id", flat=True))
    removed += sum(map(erase_organization, organizations - kept))
    # A plan with fewer days, since.
    for organization_id, since in visible_to(kept, now).items():
        for kind in _REMOVERS:
            removed += _remove(kind._default_manager.filter(organization_id=organization_id, created_at__lt=since))
    return removed


def erase_organization(organization_id: UUID) -> int:
    """Remove every file and batch of an organization; return how many rows."""
    return sum(_remove(kind._default_manager.filter(organization_id=organization_id)) for kind in _REMOVERS)


def _organizations() -> set[UUID]:
    found: set[UUID] = set()
    for kind in _REMOVERS:
        found.update(kind._default_manager.order_by().values_list("organization_id", flat=True).distinct())
    return found


def _remove(rows: QuerySet[Any]) -> int:
    removed = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        _REMOVERS[rows.model](ids)
        removed += len(ids)
    return removed
