"""Cursor pagination of long lists.

Ids are sortable by time, so a cursor is the last id of a page, and nothing is counted or skipped.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from apps.kernel.rest.envelopes import InvalidFields, Issue

MAX_LIMIT, DEFAULT_LIMIT = 100, 50
# A UUIDv7 made before the year 9999: 16 bytes in 22 letters, the version in the ninth.
CURSOR = r"[A-Za-z0-4][A-Za-z0-9_-]{7}[c-f][A-Za-z0-9_-]{12}[AQgw]"
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows of a list, and the cursor of the next page, if there is one."""

    rows: Sequence[Row]
    limit: int
    next_cursor: str | None

    @property
    def pagination(self) -> dict[str, Any]:
        """The page's `pagination` object in the API."""
        return {"nextCursor": self.next_cursor, "hasMore": self.next_cursor is not None, "limit": self.limit}


def page_of(rows: Sequence[Row], limit: int, id_of: Callable[[Row], UUID]) -> Page[Row]:
    """Return the page of at most `limit` rows; `rows` has one more if there is a next page."""
    shown = rows[:limit]
    return Page(shown, limit, write_cursor(id_of(shown[-1])) if len(rows) > limit else None)


def write_cursor(identifier: UUID) -> str:
    """Return the cursor for the rows after an id."""
    return urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def read_cursor(text: str) -> UUID:
    """Return the id in a cursor. Raises InvalidFields for an invalid one."""
    if not re.fullmatch(CURSOR, text):
        raise InvalidFields([Issue("cursor", "Must be the nextCursor of an earlier answer")])
    return UUID(bytes=urlsafe_b64decode(text + "=="))
