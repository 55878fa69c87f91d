"""Pages of a long list: where one ends, and how the next is asked for.

Ids are sortable by time, so a cursor is the last id of a page and nothing is counted or skipped over. Must never know
what is listed.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from apps.kernel.rest.envelopes import InvalidFields, Issue

MAX_LIMIT, DEFAULT_LIMIT = 100, 50
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


def read_limit(text: str | None) -> int:
    """Return the page size a client asked for. Raises InvalidFields past 1..100."""
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidFields([Issue("limit", f"Must be a whole number from 1 to {MAX_LIMIT}")])
    return int(text)


def write_cursor(identifier: UUID) -> str:
    """Return the cursor of what comes after an id."""
    return urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def read_cursor(text: str) -> UUID:
    """Return the id that a cursor stands for. Raises InvalidFields for anything that is not one."""
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise InvalidFields([Issue("cursor", "Must be the nextCursor of an earlier answer")]) from error
