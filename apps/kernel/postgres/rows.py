"""Rows: found by id, also with a lock; deleted in pieces, so that no statement grows with the size of a tenant's data;
and arrays of values for their columns, written as text.

An id that no row has, and text that is no id, raise NotFound. Text takes half (ids) to a ninth (amounts) of the
driver's time for arrays; nothing in it is quoted, so texts must be our own words.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

from apps.kernel.errors import NotFound
from apps.kernel.ids import find_id

Row = TypeVar("Row", bound=Model)
# The `status` of rows that are deleted, but kept.
_DELETED: Final = "deleted"


def identify(identifier: UUID | str, missing: str) -> UUID:
    """Return the id. Raises NotFound, with the message `missing`, for text that is no id."""
    found = identifier if isinstance(identifier, UUID) else find_id(identifier)
    if found is None:
        raise NotFound(missing)
    return found


def find_row(rows: QuerySet[Row], identifier: UUID | str, missing: str) -> Row:
    """Return the row of a query with this id. Raises NotFound, with the message `missing`, if there is none."""
    row = rows.filter(pk=identify(identifier, missing)).first()
    if row is None:
        raise NotFound(missing)
    return row


def lock_row(row: Row, missing: str) -> Row:
    """Return the current row, locked until the transaction ends, so that concurrent changes wait for each other.

    Raises NotFound, with the message `missing`, if its `status` is deleted.
    """
    rows: Any = type(row)._default_manager
    living: QuerySet[Row] = rows.select_for_update(no_key=True).exclude(status=_DELETED)
    return find_row(living, row.pk, missing)


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


def write_array(values: Iterable[UUID | Decimal | str | None]) -> str:
    """Return an array of ids, amounts or our own words, for a parameter that the statement casts; None is null."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"
