"""Row lookup by id, also with a lock: an id that no row has, and text that is no id, raise NotFound."""

from __future__ import annotations

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
