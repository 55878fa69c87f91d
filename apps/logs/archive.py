"""Where rows of the log are found that are not in PostgreSQL any more: nowhere, or in a column store for older days.

Knows what such a store must be able to do, and which one is configured. Must never know how it does it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from django.conf import settings

if TYPE_CHECKING:
    from apps.logs.access import LogScope
    from apps.logs.search import Filters, Row

# Days that are always in PostgreSQL, today included: whatever still comes for a request of theirs finds its row there.
KEPT_DAYS = 7


class LogArchive(Protocol):
    """A store of days that have left PostgreSQL. Rows are told apart by their ids: one added twice is there once."""

    def find_page(
        self,
        scope: LogScope,
        filters: Filters,
        *,
        low: datetime,
        high: datetime,
        after: UUID | None,
        count: int,
        ascending: bool,
    ) -> list[Row]:
        """Return at most `count` rows from `low` to `high`, both included: as `search.find_page` does."""

    def find_row(self, scope: LogScope, identifier: UUID) -> Row | None:
        """Return a row by its id, or None."""

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows in the order of the table's columns; one that is there already is replaced."""

    def oldest(self) -> dict[UUID, datetime]:
        """Return the moment of the oldest row of each organization that has any."""

    def levels(self) -> set[tuple[UUID, str]]:
        """Return the organizations that have rows with a retention level above the lowest, and those levels."""

    def delete(self, organizations: Collection[UUID], before: datetime | None = None) -> None:
        """Delete organizations' rows: those before a moment, or all."""

    def drop_before(self, day: date) -> None:
        """Drop earlier days whole."""

    def blank(self, organization_id: UUID, level: str, allowed: str, columns: Sequence[str]) -> None:
        """Empty columns of an organization's rows of a level; they have the level `allowed` then."""


def find_archive() -> LogArchive | None:
    """Return the store of older days, None where PostgreSQL has them all."""
    return _clickhouse(settings.CLICKHOUSE_URL) if settings.CLICKHOUSE_URL else None


def archived_before(now: datetime) -> datetime:
    """Return the moment since which every row is in PostgreSQL; earlier ones may have been moved."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=KEPT_DAYS - 1)


def merge_rows(rows: Sequence[Row], moved: Sequence[Row], *, count: int, ascending: bool) -> list[Row]:
    """Return the first `count` rows of both in order; of a row that both have, the first's."""
    found: Mapping[UUID, Row] = {row["id"]: row for row in (*moved, *rows)}
    return sorted(found.values(), key=lambda row: (row["created_at"], row["id"]), reverse=not ascending)[:count]


@cache
def _clickhouse(url: str) -> LogArchive:
    # Not above: its library is an extra.
    from apps.logs.clickhouse import ClickHouse

    return ClickHouse(url)
