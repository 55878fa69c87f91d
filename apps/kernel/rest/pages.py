"""Cursor pagination of long lists.

Ids are sortable by time, so a cursor is the last id of a page and nothing is counted or skipped over. Must never know
what is listed.
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
    """Some rows of a list, and the cursor of those after them, if there are any."""

    rows: Sequence[Row]
    limit: int
    next_cursor: str | None

    @property
    def pagination(self) -> dict[str, Any]:
        """The page as it is told on the wire."""
        return {"nextCursor": self.next_cursor, "hasMore": self.next_cursor is not None, "limit": self.limit}


def page_of(rows: Sequence[Row], limit: int, id_of: Callable[[Row], UUID]) -> Page[Row]:
    """Return the page of at most `limit` rows; `rows` were asked for with one more, which tells that there are more."""
    shown = rows[:limit]
    return Page(shown, limit, write_cursor(id_of(shown[-1])) if len(rows) > limit else None)


def write_cursor(identifier: UUID) -> str:
    """Return the cursor of what comes after an id."""
    return urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def read_cursor(text: str) -> UUID:
    """Return the id that a cursor stands for. Raises InvalidFields for anything that is not one."""
    if not re.fullmatch(CURSOR, text):
        raise InvalidFields([Issue("cursor", "Must be the nextCursor of an earlier answer")])
    return UUID(bytes=urlsafe_b64decode(text + "=="))
