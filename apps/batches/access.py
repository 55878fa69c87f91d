"""Access to files and batches, their lists and contents: an API key reaches its own project's, while content is kept.

Anything else gets the same error as an object that does not exist. Access is never wider than that of the caller's key.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from apps.batches import refusals
from apps.batches.file_fields import Listing
from apps.batches.models import HIDDEN_PURPOSES, Batch, BatchFormat, StoredFile
from apps.batches.stored_files import chunks_of, name_of
from apps.gateway.access.policy import Policy
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.responses.public_ids import is_own_id, is_public_id
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


class RequestFile:
    """A stored file that a request names."""

    def __init__(self, row: StoredFile) -> None:
        self._row = row
        self.name = name_of(row)
        self.size = row.size

    def read(self) -> bytes:
        """Return its content. Raises DatabaseError."""
        return b"".join(chunks_of(self._row))


class RequestFiles:
    """Finds files for requests."""

    def find(self, policy: Policy, file_id: str, param: str) -> RequestFile:
        """Return a file of the caller's project. Raises NotFound, DatabaseError."""
        return RequestFile(access_file(policy, file_id, param))


Row = TypeVar("Row", bound=Model)


def page_of(rows: QuerySet[Row], listing: Listing) -> tuple[list[Row], bool]:
    """Return the rows that were asked for, and whether there are more. Raises InvalidRequest naming `after`."""
    return database.read(partial(_page_of, rows, listing))


def _page_of(rows: QuerySet[Row], listing: Listing) -> tuple[list[Row], bool]:
    descending = listing.order == "desc"
    if listing.after is not None:
        rows = rows.filter(beyond(rows, listing.after, "after", older=descending))
    ordered = rows.order_by(*(("-created_at", "-pk") if descending else ("created_at", "pk")))
    found = list(ordered[: listing.limit + 1])
    return found[: listing.limit], len(found) > listing.limit


def beyond(rows: QuerySet[Row], cursor: str, param: str, *, older: bool) -> Q:
    """Return what holds for the rows older or newer than the one of an id. Raises InvalidRequest naming `param`."""
    row: Any = rows.filter(pk=cursor).first() if is_public_id(cursor) else None
    if row is None:
        raise InvalidRequest(f"{param} must be an id of this list", param=param)
    word = "lt" if older else "gt"
    return Q(**{f"created_at__{word}": row.created_at}) | Q(**{"created_at": row.created_at, f"pk__{word}": row.pk})
