"""Deletes any number of rows in pieces, so that no statement grows with the size of a tenant's data."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet

# Rows deleted by one statement: small enough not to block other writers, or to meet a statement timeout.
MAX_ROWS: Final = 5_000


def delete_in_pieces(rows: QuerySet[Any], piece: int = MAX_ROWS) -> int:
    """Delete the rows, `piece` of them at a time; return how many. An interrupted run is completed by the next.

    Outside of a transaction each piece is a transaction of its own. Raises DatabaseError.
    """
    deleted = 0
    while count := delete_piece(rows, piece):
        deleted += count
    return deleted


def delete_piece(rows: QuerySet[Any], piece: int = MAX_ROWS) -> int:
    """Delete `piece` of the rows; return how many there were. Raises DatabaseError."""
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[:piece])
    rows.model._default_manager.filter(pk__in=ids).delete()
    return len(ids)
