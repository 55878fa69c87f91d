"""Live updates of pages: a stream of server-sent events that says how many requests the log has more than the page.

A stream ends after some minutes, when the visitor's session or membership has ended, when the client has left, and when
the same person opens too many newer ones; the page's script opens the next one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import gevent
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils import timezone

from apps.console.forms import read_query
from apps.console.pages.logs.period import period_of
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.kernel.concurrency.fairness import FairShare
from apps.kernel.ids import find_id
from apps.kernel.postgres import database
from apps.logs.access import access_logs, scope_of_user
from apps.logs.serializers import LogsQuery, filters_of, requested_ids_of
from apps.logs.watch import LogWatch, NewRows, join_watch, leave_watch

# Seconds of a stream, and between two of its looks at the rows that all streams of the organization share.
LIFETIME: Final = 120.0
PAUSE: Final = 0.5
# Streams at once in one worker: of all, of one organization, and of one person. A person's newest replaces the oldest:
# it is that of a page that was left long ago, which shows only when a heartbeat cannot be sent.
OF_ORGANIZATIONS: Final[FairShare[UUID]] = FairShare(300, 100, "live pages")
OF_ONE_PERSON: Final = 10
_streams: Final[dict[UUID, list[LiveStream]]] = {}
# Milliseconds after which a browser opens the next stream.
_RETRY: Final = 3_000
_HEARTBEAT: Final = b": \n\n"


@workspace_page()
def live(request: HttpRequest, workspace: Workspace) -> HttpResponseBase:
    """Stream how many requests match the filters of the query and are newer than the page's newest."""
    query = read_query(request, LogsQuery, orgId=str(workspace.organization.id), **period_of(request))
    scope = access_logs(scope_of_user(workspace.user, timezone.now()), requested_ids_of(query))
    newest = request.headers.get("Last-Event-ID") or request.GET.get("newest", "")
    response: HttpResponseBase
    if request.method == "HEAD":
        response = HttpResponse()
    else:
        rows = NewRows(scope, filters_of(query), find_id(newest))
        response = StreamingHttpResponse(LiveStream(workspace, rows))
    response["Content-Type"] = "text/event-stream; charset=utf-8"
    # Keeps proxies from buffering the stream.
    response["X-Accel-Buffering"] = "no"
    return response


class LiveStream:
    """The body of a stream."""

    def __init__(self, workspace: Workspace, rows: NewRows) -> None:
        """Take a place among the organization's streams; end the person's oldest. Raises RateLimited, Overloaded."""
        self._person, self._organization = workspace.user.id, workspace.organization.id
        self._session, self._rows = str(workspace.session.digest), rows
        own = _streams.get(self._person, [])
        if len(own) >= OF_ONE_PERSON:
            own[0].close()
        OF_ORGANIZATIONS.take(self._organization)
        _streams.setdefault(self._person, []).append(self)
        self._watch: LogWatch | None = join_watch(self._organization, self._session)

    def close(self) -> None:
        """Give back the place; the server closes a stream whenever it ends."""
        if self._watch is None:
            return
        leave_watch(self._watch, self._session)
        self._watch = None
        OF_ORGANIZATIONS.give_back(self._organization)
        own = _streams[self._person]
        own.remove(self)
        if not own:
            del _streams[self._person]

    def __iter__(self) -> Iterator[bytes]:
        """Yield a count after each change, and heartbeats in between."""
        try:
            yield from self._follow()
        finally:
            self.close()

    def _follow(self) -> Iterator[bytes]:
        # The session and the membership were read with it.
        database.release_connection()
        yield b"retry: %d\n\n" % _RETRY
        ends_at = time.monotonic() + LIFETIME
        quiet_until = _quiet_until()
        looks = -1
        while (watch := self._watch) is not None and time.monotonic() < ends_at:
            watch.look()
            if self._session in watch.ended:
                return
            if watch.looks != looks and watch.looks:
                looks = watch.looks
                if self._rows.add(watch):
                    quiet_until = _quiet_until()
                    yield _frame(self._rows.count, max(watch.rows))
            if time.monotonic() >= quiet_until:
                quiet_until = _quiet_until()
                yield _HEARTBEAT
            gevent.sleep(PAUSE)


def _frame(count: int, newest: UUID) -> bytes:
    return b"id: %b\nevent: requests\ndata: %b\n\n" % (str(newest).encode(), json.dumps({"count": count}).encode())


def _quiet_until() -> float:
    heartbeat: float = settings.HEARTBEAT_INTERVAL
    return time.monotonic() + heartbeat


PATHS = [path("o/<str:organization_id>/logs/live", live, name="logs_live")]
