"""Row locks: whoever changes a row waits for whoever is changing or deleting it, and then sees it as it is.

Must never decide who may change what.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model

from apps.kernel.errors import NotFound
from apps.organizations.models import DELETED

_Row = TypeVar("_Row", bound=Model)


def lock_row(row: _Row, missing: str) -> _Row:
    """Return a row as it is now, which others have to wait for until the transaction ends.

    Raises NotFound for a row whose `status` says that it is deleted.
    """
    rows: Any = type(row)._default_manager
    living = rows.select_for_update(no_key=True).exclude(status=DELETED)
    found: _Row | None = living.filter(pk=row.pk).first()
    if found is None:
        raise NotFound(missing)
    return found
