"""Row locks: concurrent changes of a row wait for each other and see its current values."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from apps.kernel.postgres.row_lookup import find_row
from apps.organizations.models import DELETED

_Row = TypeVar("_Row", bound=Model)


def lock_row(row: _Row, missing: str) -> _Row:
    """Return the current row, locked until the transaction ends.

    Raises NotFound if its `status` is deleted.
    """
    rows: Any = type(row)._default_manager
    living: QuerySet[_Row] = rows.select_for_update(no_key=True).exclude(status=DELETED)
    return find_row(living, row.pk, missing)
