"""Lists of files and batches as OpenAI's API gives them: newest or oldest first, from a cursor on.

Knows rows that have a time and an id. Must never know what a row is.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from apps.batches.file_fields import Listing
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.responses.public_ids import is_public_id

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
