"""Row locks: concurrent changes of a row wait for each other and see its current values."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model

from apps.kernel.errors import NotFound
from apps.organizations.models import DELETED

_Row = TypeVar("_Row", bound=Model)


def lock_row(row: _Row, missing: str) -> _Row:
    """Return the current row, locked until the transaction ends.

    Raises NotFound if its `status` is deleted.
    """
    rows: Any = type(row)._default_manager
    living = rows.select_for_update(no_key=True).exclude(status=DELETED)
    found: _Row | None = living.filter(pk=row.pk).first()
    if found is None:
        raise NotFound(missing)
    return found
