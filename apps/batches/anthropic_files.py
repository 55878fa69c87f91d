"""Files in Anthropic's words, for its clients: what is told of one, and lists of them in pages.

Knows rows and the query of a list. Must never know who asks, nor what a file is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from mimetypes import guess_type
from typing import Any, Final

from django.db.models import QuerySet

from apps.batches.file_fields import Listing, read_limit
from apps.batches.lists import beyond, page_of
from apps.batches.models import StoredFile
from apps.batches.stored_files import name_of
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.responses.paging import last_of

Record = dict[str, Any]

_USUAL_PAGE, _MOST_PAGE = 20, 1_000
_UNKNOWN: Final = "application/octet-stream"


def anthropic_file(row: StoredFile) -> Record:
    """Return a file as Anthropic's API tells of it."""
    name = name_of(row)
    return {
        "id": row.pk,
        "type": "file",
        "filename": name,
        "mime_type": guess_type(name)[0] or _UNKNOWN,
        "size_bytes": row.size,
        "created_at": row.created_at.isoformat().replace("+00:00", "Z"),
        "expires_at": row.expires_at.isoformat().replace("+00:00", "Z"),
        "downloadable": True,
    }


def anthropic_deletion(file_id: str) -> Record:
    """Return what Anthropic's API says of a file that is deleted."""
    return {"id": file_id, "type": "file_deleted"}


def anthropic_page(rows: QuerySet[StoredFile], query: Mapping[str, Sequence[str]]) -> Record:
    """Return a page of a list, the newest first. Raises InvalidRequest naming the parameter.

    Newer clients follow `next_page`, older ones the ids of the first and the last.
    """
    limit = read_limit(query, usual=_USUAL_PAGE, most=_MOST_PAGE)
    page, after, before = (last_of(query, name) for name in ("page", "after_id", "before_id"))
    if before is not None and (page is not None or after is not None):
        raise InvalidRequest("before_id cannot be given beside after_id or page", param="before_id")
    cursor = page if page is not None else after
    if cursor is not None:
        param = "page" if page is not None else "after_id"
        rows = rows.filter(database.read(partial(beyond, rows, cursor, param, older=True)))
    if before is not None:
        rows = rows.filter(database.read(partial(beyond, rows, before, "before_id", older=False)))
    # Those before one are the nearest to it.
    found, has_more = page_of(rows, Listing(limit, "asc" if before is not None else "desc", None))
    shown = [anthropic_file(row) for row in (reversed(found) if before is not None else found)]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    next_page = last if has_more and before is None else None
    return {"data": shown, "has_more": has_more, "first_id": first, "last_id": last, "next_page": next_page}
