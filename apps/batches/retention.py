"""Retention of files and batches: removed in batches once past their time, or beyond their organization's retention.

Knows levels and days. Must never know what files say.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Model, QuerySet

from apps.batches.models import Batch, StoredFile, Upload
from apps.logs.retention import visible_to
from apps.organizations.models import Organization, RetentionLevel

# Rows removed by one statement. Each may have many lines or chunks.
BATCH: Final = 20
# How long a client is told that its upload's time is over.
_UPLOADS_TOLD_FOR: Final = timedelta(days=1)
_KINDS: Final[tuple[type[Model], ...]] = (StoredFile, Batch, Upload)


def purge(now: datetime) -> int:
    """Remove what is past its time, or is an organization's that keeps nothing by now; return how many rows.

    A run that is cut short is carried on by the next.
    """
    removed = _remove(StoredFile.objects.filter(expires_at__lte=now))
    removed += _remove(Batch.objects.filter(kept_until__lte=now))
    removed += _remove(Upload.objects.filter(expires_at__lte=now - _UPLOADS_TOLD_FOR))
    organizations = _organizations()
    # What was on its way when an organization was deleted arrived after its erasure.
    keeping = Organization.objects.filter(id__in=organizations, retention_level=RetentionLevel.RETAIN)
    kept = set(keeping.exclude(status=Organization.Status.DELETED).values_list("id", flat=True))
    removed += sum(map(erase_organization, organizations - kept))
    # A plan with fewer days, since.
    for organization_id, since in visible_to(kept, now).items():
        for kind in _KINDS:
            removed += _remove(kind._default_manager.filter(organization_id=organization_id, created_at__lt=since))
    return removed


def erase_organization(organization_id: UUID) -> int:
    """Remove every file and batch of an organization; return how many rows."""
    return sum(_remove(kind._default_manager.filter(organization_id=organization_id)) for kind in _KINDS)


def _organizations() -> set[UUID]:
    found: set[UUID] = set()
    for kind in _KINDS:
        found.update(kind._default_manager.order_by().values_list("organization_id", flat=True).distinct())
    return found


def _remove(rows: QuerySet[Any]) -> int:
    removed = 0
    while ids := [row.pk for row in rows.only("pk")[:BATCH]]:
        rows.model._default_manager.filter(pk__in=ids).delete()
        removed += len(ids)
    return removed
