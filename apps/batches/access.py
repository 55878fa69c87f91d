"""Access to files and batches: an API key reaches its own project's, as long as the organization keeps content.

Whatever it does not reach is refused in the words for what never was. Must never widen what a caller was given.
"""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils import timezone

from apps.batches import refusals
from apps.batches.models import HIDDEN_PURPOSES, Batch, BatchFormat, StoredFile
from apps.gateway.access.policy import Policy
from apps.kernel.postgres import database
from apps.responses.public_ids import is_own_id
from apps.responses.retention import keeps


def insist_on_keeping(policy: Policy) -> None:
    """Raise InvalidRequest where the organization keeps no content."""
    if not keeps(policy):
        raise refusals.nothing_is_kept()


def visible_files(policy: Policy) -> QuerySet[StoredFile]:
    """Return the files that a caller reaches."""
    if not keeps(policy):
        return StoredFile.objects.none()
    rows = StoredFile.objects.filter(project_id=policy.project_id, is_complete=True, expires_at__gt=timezone.now())
    return rows.exclude(purpose__in=HIDDEN_PURPOSES)


def visible_batches(policy: Policy, batch_format: BatchFormat) -> QuerySet[Batch]:
    """Return the batches of a format that a caller reaches."""
    if not keeps(policy):
        return Batch.objects.none()
    return Batch.objects.filter(project_id=policy.project_id, format=batch_format, kept_until__gt=timezone.now())


def access_file(policy: Policy, file_id: str, param: str | None = None) -> StoredFile:
    """Return a file. Raises NotFound, DatabaseError."""
    row = database.read(visible_files(policy).filter(pk=file_id).first) if is_own_id(file_id) else None
    if row is None:
        raise refusals.no_file(file_id, param)
    return row


def access_batch(policy: Policy, batch_format: BatchFormat, batch_id: str) -> Batch:
    """Return a batch. Raises NotFound, DatabaseError."""
    rows = visible_batches(policy, batch_format)
    row = database.read(rows.filter(pk=batch_id).first) if is_own_id(batch_id) else None
    if row is None:
        raise refusals.no_batch(batch_id)
    return row
