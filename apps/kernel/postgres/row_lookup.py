"""Row lookup by id: an id that no row has, and text that is no id, raise NotFound."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

from apps.kernel.errors import NotFound
from apps.kernel.ids import find_id

Row = TypeVar("Row", bound=Model)


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
