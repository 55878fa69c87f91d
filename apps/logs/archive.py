"""The log archive (cold storage): interface of stores for days that have left PostgreSQL, and the configured one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings

from apps.logs.access import LogScope
from apps.logs.query import LogFilters, LogRow

# Days that stay in PostgreSQL, today included, because late updates must find their rows there.
KEPT_DAYS = 7


class LogArchive(Protocol):
    """A store of days that have left PostgreSQL. Rows are identified by id: adding one twice stores it once."""

    def find_page(
        self,
        scope: LogScope,
        filters: LogFilters,
        *,
        low: datetime,
        high: datetime,
        after: UUID | None,
        count: int,
        ascending: bool,
    ) -> list[LogRow]:
        """Return at most `count` rows from `low` to `high`, both included, as `search.find_page` does."""

    def find_row(self, scope: LogScope, identifier: UUID) -> LogRow | None:
        """Return a row by its id, or None."""

    def find_media_data(self, scope: LogScope, identifier: UUID) -> str | None:
        """Return the encrypted images and audio of a row, None without any."""

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows in the order of the table's columns; existing ones are replaced."""

    def oldest(self) -> dict[UUID, datetime]:
        """Return the time of the oldest row of each organization with rows."""

    def levels(self) -> set[tuple[UUID, str]]:
        """Return organizations and retention levels of rows above the lowest level."""

    def delete(self, organizations: Collection[UUID], before: datetime | None = None) -> None:
        """Delete organizations' rows before a moment, or all."""

    def drop_before(self, day: date) -> None:
        """Drop earlier days entirely."""

    def blank(self, organization_id: UUID, level: str, allowed: str, columns: Sequence[str]) -> None:
        """Clear columns of an organization's rows at a level, and set their level to `allowed`."""


def find_archive() -> LogArchive | None:
    """Return the configured archive, None if PostgreSQL has all days."""
    return _clickhouse(settings.CLICKHOUSE_URL) if settings.CLICKHOUSE_URL else None


def archived_before(now: datetime) -> datetime:
    """Return the moment since which every row is in PostgreSQL; earlier ones may have been archived."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=KEPT_DAYS - 1)


def merge_rows(rows: Sequence[LogRow], moved: Sequence[LogRow], *, count: int, ascending: bool) -> list[LogRow]:
    """Return the first `count` rows of both in order; for a row in both, the one from `rows`."""
    found: Mapping[UUID, LogRow] = {row["id"]: row for row in (*moved, *rows)}
    return sorted(found.values(), key=lambda row: (row["created_at"], row["id"]), reverse=not ascending)[:count]


@cache
def _clickhouse(url: str) -> LogArchive:
    # Imported here, because the library is an optional extra.
    from apps.logs.clickhouse import ClickHouse

    return ClickHouse(url)
