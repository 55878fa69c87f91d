"""Watches organizations' logs for new requests, for pages that follow them: one query a second in each process and
organization, however many readers follow.

A reader calls `look` now and then; the first call after a second has passed runs the query, and every reader sees its
rows. Every tenth look asks instead which readers' sessions and memberships still hold.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import structlog
from django.db import DatabaseError
from django.utils import timezone

from apps.kernel.postgres import database, replica
from apps.logs.access import LogScope
from apps.logs.models import RequestLog, find_time
from apps.logs.query import LogFilters
from apps.organizations.credentials.sessions import live_sessions

log = structlog.get_logger(__name__)

# Seconds between looks; every so many looks asks for the sessions.
PAUSE: Final = 1.0
SESSION_TURN: Final = 10
# A request is logged when it ends, with the time at which it began: rows that began within this time are looked at, and
# of those the newest.
WINDOW: Final = timedelta(minutes=15)
MAX_ROWS: Final = 500
_COLUMNS: Final = (
    *("id", "project_id", "api_key_id", "provider_key_id", "used_model", "used_provider"),
    *("finish_reason", "unified_finish_reason", "source", "session_id", "custom_headers"),
)


class SeenRow(NamedTuple):
    """The columns of a row of the log that filters compare."""

    id: UUID
    project_id: UUID
    api_key_id: UUID
    provider_key_id: UUID | None
    used_model: str
    used_provider: str
    finish_reason: str | None
    unified_finish_reason: str | None
    source: str | None
    session_id: str | None
    custom_headers: Any


class LogWatch:
    """The newest rows of one organization, and the sessions of its readers."""

    def __init__(self, organization_id: UUID) -> None:
        self.organization_id = organization_id
        # Number of queries so far, and the rows of the last one.
        self.looks = 0
        self.rows: dict[UUID, SeenRow] = {}
        # Digests of the readers' sessions with the number of their readers; and those that no longer hold.
        self.sessions: dict[str, int] = {}
        self.ended: set[str] = set()
        # The rows of the last query that the one before did not have, and how many of them match: readers of one page
        # mostly want the same.
        self.before: dict[UUID, SeenRow] = {}
        self._fresh: list[SeenRow] = []
        self._matching: dict[Hashable, int] = {}
        self._next_look = 0.0
        self._is_looking = False

    def look(self) -> None:
        """Run the query if a second has passed since the last one; else return at once."""
        now = time.monotonic()
        if self._is_looking or now < self._next_look:
            return
        self._is_looking, self._next_look = True, now + PAUSE
        try:
            if self.looks % SESSION_TURN == SESSION_TURN - 1:
                self.ended = set(self.sessions) - live_sessions(self.sessions, self.organization_id)
            else:
                self._renew({row.id: row for row in replica.read(self._find)})
            self.looks += 1
        except DatabaseError as error:
            log.warning("logs.watch_failed", error=type(error).__name__)
        finally:
            self._is_looking = False
            database.release_connection()

    def _renew(self, rows: dict[UUID, SeenRow]) -> None:
        self.before, self.rows = self.rows, rows
        self._fresh = [row for identifier, row in rows.items() if identifier not in self.before]
        self._matching.clear()

    def count_fresh(self, scope: LogScope, filters: LogFilters) -> int:
        """Return how many rows of the last query that the one before did not have are in a scope and meet filters."""
        if not self._fresh or not _are_within(self._fresh, filters):
            return _count(self._fresh, scope, filters)
        wanted = (
            *(scope.project_id, scope.api_key_id, scope.provider_key_id, scope.key_ids),
            replace(filters, start=None, end=None),
        )
        found = self._matching.get(wanted)
        if found is None:
            found = self._matching[wanted] = _count(self._fresh, scope, filters)
        return found

    def _find(self, using: str) -> list[SeenRow]:
        rows = RequestLog.objects.using(using).filter(
            organization_id=self.organization_id, created_at__gte=timezone.now() - WINDOW
        )
        found = rows.order_by("-created_at", "-id").values_list(*_COLUMNS)[:MAX_ROWS]
        return [SeenRow(*row) for row in found]


# The watches of this process, by organization; each has a reader at least.
_watches: dict[UUID, LogWatch] = {}


def join_watch(organization_id: UUID, session: str) -> LogWatch:
    """Return the organization's watch with one more reader, whose session has this digest; the reader must leave it."""
    watch = _watches.setdefault(organization_id, LogWatch(organization_id))
    watch.sessions[session] = watch.sessions.get(session, 0) + 1
    return watch


def leave_watch(watch: LogWatch, session: str) -> None:
    """Take a reader off a watch; without readers the watch ends."""
    watch.sessions[session] -= 1
    if not watch.sessions[session]:
        del watch.sessions[session]
    if not watch.sessions:
        _watches.pop(watch.organization_id, None)


@dataclass(slots=True)
class NewRows:
    """The number of one reader's new rows: rows that appeared after those of the reader's page.

    `newest` is the newest row of the page; None counts only what appears from now on.
    """

    scope: LogScope
    filters: LogFilters
    newest: UUID | None
    count: int = 0
    # The rows of the watch when this reader last counted.
    _seen: dict[UUID, SeenRow] | None = None

    def add(self, watch: LogWatch) -> bool:
        """Count the rows of the watch that are new and match; return whether there are any."""
        seen, rows = self._seen, watch.rows
        self._seen = rows
        if seen is rows:
            return False
        if seen is not None and seen is watch.before:
            matching = watch.count_fresh(self.scope, self.filters)
        else:
            fresh = [row for identifier, row in rows.items() if self._is_new(identifier, seen)]
            matching = _count(fresh, self.scope, self.filters)
        self.count += matching
        return bool(matching)

    def _is_new(self, identifier: UUID, seen: Collection[UUID] | None) -> bool:
        if seen is not None:
            return identifier not in seen
        return self.newest is not None and identifier > self.newest


def _count(rows: Iterable[SeenRow], scope: LogScope, filters: LogFilters) -> int:
    return sum(1 for row in rows if matches(row, scope, filters))


def _are_within(rows: Collection[SeenRow], filters: LogFilters) -> bool:
    """Return whether all rows are within the period of the filters."""
    if filters.start is None and filters.end is None:
        return True
    earliest, latest = find_time(min(row.id for row in rows)), find_time(max(row.id for row in rows))
    return (
        earliest is not None
        and latest is not None
        and (filters.start is None or filters.start <= earliest)
        and (filters.end is None or latest <= filters.end)
    )


def matches(row: SeenRow, scope: LogScope, filters: LogFilters) -> bool:
    """Return whether a row is in a scope of its organization and meets the filters, as `search.find_page` would."""
    moment = find_time(row.id)
    wanted = (
        (scope.project_id, row.project_id),
        (scope.api_key_id, row.api_key_id),
        (scope.provider_key_id, row.provider_key_id),
        (filters.provider, row.used_provider),
        (filters.finish_reason, row.finish_reason),
        (filters.unified_finish_reason, row.unified_finish_reason),
        (filters.source, row.source),
        (filters.session_id, row.session_id),
    )
    return (
        (scope.key_ids is None or row.api_key_id in scope.key_ids)
        and all(one is None or one == value for one, value in wanted)
        and (filters.model is None or filters.model in {row.used_model, f"{row.used_provider}/{row.used_model}"})
        and _has_header(row.custom_headers, filters.header_key, filters.header_value)
        and moment is not None
        and (filters.start is None or filters.start <= moment)
        and (filters.end is None or moment <= filters.end)
    )


def _has_header(headers: Any, key: str | None, value: str | None) -> bool:
    if key is None and value is None:
        return True
    if not isinstance(headers, dict):
        return False
    if key is None:
        return value in headers.values()
    name = key.lower()
    return name in headers and value in {None, headers[name]}
