"""Background run: its request in the form of a client's, its cancellation, and its state while it is answered.

Its events go into the log, its end into the row of its response. The row is written first, then the event.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final
from uuid import UUID

import gevent
import msgspec
import structlog
from django.db import DatabaseError
from gevent.event import Event as Signal

from apps.billing.worker_leases import worker_name
from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.endpoints.response_state import ResponseState
from apps.gateway.routing.request_profile import SESSION_HEADERS
from apps.kernel.errors import ApiError
from apps.kernel.postgres import database
from apps.kernel.rest.routes import route_table
from apps.kernel.valkey.cache_store import CacheShare
from apps.responses import run_leases
from apps.responses.encrypted_json import decrypt_json, encrypt_json
from apps.responses.event_log import LAST_EVENTS, EventLogWriter
from apps.responses.response_rows import (
    ResponseDraft,
    encrypt_for_conversation,
    encrypt_outcome,
    output_of,
    response_place,
)
from apps.responses.run_leases import RunRequest

# The headers that mean anything once a request was let in. Credentials are none of them: they are never stored.
_KEPT: Final = (
    "x-request-id",
    "x-source",
    "x-no-fallback",
    "x-strict",
    "x-hedge",
    "x-hedge-max-cost",
    "cdn-loop",
    "user-agent",
    "traceparent",
    *SESSION_HEADERS,
)


class BackgroundRequest(ClientRequest):
    """A request that a worker makes to itself."""

    def __init__(self, request: RunRequest, log_id: UUID, switch: CancelSwitch, admitted: Signal) -> None:
        """Take the request of a run. `switch` ends the run; `admitted` is set when it has been let in."""
        self._body = msgspec.json.encode(request.wire)
        environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": "/v1/responses", "CONTENT_LENGTH": str(len(self._body))}
        super().__init__(environ, route_table().exact["POST", "/v1/responses"])
        self.log_id = log_id
        self.conversation_id = (request.echo.get("conversation") or {}).get("id", "")
        self.response_chain = request.chain
        self._switch, self._admitted = switch, admitted

    @property
    def body_limit(self) -> int:
        """As many bytes as it has: what it grew by was bounded where it was put together."""
        return len(self._body)

    def body(self) -> bytes:
        """Return the body."""
        return self._body

    def watch_disconnect(self) -> ClientDisconnect:
        """Return the switch that ends the run; the pipeline asks for it once a request has been admitted."""
        self._admitted.set()
        return self._switch


def kept_headers(request: ClientRequest) -> dict[str, str]:
    """Return what a run must know of its client's headers, wherever and whenever it goes on."""
    tags = {f"x-gateway-{name}": value for name, value in (request.custom_headers or {}).items()}
    return {**request.headers(*_KEPT), "x-request-id": request.request_id, **tags}


log = structlog.get_logger(__name__)

# Seconds that a finished answer waits for PostgreSQL, and between two tries.
_PATIENCE: Final = 600.0
_PAUSE: Final = 1.0


class BackgroundState(ResponseState):
    """The stored state and events of a background response.

    Raises RedisError where a run is taken over (`is_new` false) and the store cannot tell which events it has.
    """

    def __init__(self, draft: ResponseDraft, request: RunRequest, *, is_new: bool) -> None:
        super().__init__()
        self.response_id, self.organization_id = draft.id, draft.organization_id
        self.echo = request.echo
        self.wants_events = True
        self.error: ApiError | None = None
        self.has_begun = self.has_ended = False
        # Whether another process has the run, or it was cancelled: nothing more may be written.
        self.is_lost = False
        self._draft, self._request = draft, request
        self._last_event: dict[str, Any] | None = None
        share = CacheShare.of(draft.organization_id, request.plan)
        self._writer = EventLogWriter(share, draft.id, is_new=is_new) if draft.streamed else None

    def prolong_events(self) -> None:
        """Let the events be kept on for those who stream, while the run goes on."""
        if self._writer is not None:
            self._writer.prolong()

    def queued(self, response: dict[str, Any]) -> None:
        """Write the response's first events, before a worker begins to answer it."""
        if self._writer is not None:
            for name in ("response.created", "response.queued"):
                self._writer.append({"type": name, "response": response})

    def event(self, event: dict[str, Any]) -> None:
        """Keep an event for those who stream; the first tells that the response is in progress."""
        if self.is_lost:
            return
        if not self.has_begun:
            self.has_begun = True
            self._mark_started(event.get("response"))
        if self._writer is None:
            return
        if event.get("type") in LAST_EVENTS:
            # Not before the row says so.
            self._last_event = event
        elif event.get("type") != "response.created":
            # It was, when it was queued.
            self._writer.append(event)

    def finished(self, response: dict[str, Any]) -> None:
        """Store how the run ended, before its last events are sent."""
        self.has_begun = True
        if not self.is_lost:
            self._store(response)
        if self._writer is not None and self._last_event is not None and self.has_ended:
            self._writer.append(self._last_event)

    def failed(self, error: ApiError) -> None:
        """Take note of an error before anything was answered."""
        self.error = error

    def end_failed(self, error: ApiError) -> None:
        """End the run with an error."""
        response = decrypt_json(self._draft.sealed_response, self._draft.project_id, response_place(self.response_id))
        failed = failed_response(response, error)
        self._store(failed)
        if self._writer is not None and self.has_ended:
            self._writer.append({"type": "response.failed", "response": failed})

    def _store(self, response: dict[str, Any]) -> None:
        draft, new_items = self._draft, self._request.new_items
        outcome = encrypt_outcome(draft.project_id, response, new_items, len(msgspec.json.encode(new_items)))
        items: list[tuple[str, str, int]] = []
        if draft.conversation_id is not None and response["status"] in {"completed", "incomplete"}:
            added = [*new_items, *output_of(response)]
            items = encrypt_for_conversation(draft.project_id, draft.conversation_id, added)
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self.has_ended = database.write(
                    partial(run_leases.end, self.response_id, worker_name(), outcome, items)
                )
                self.is_lost = not self.has_ended
                return
            except DatabaseError as error:
                # It is charged already: the answer must not be lost for a database that is away for a moment.
                log.warning("responses.end_not_stored", response=self.response_id, error=type(error).__name__)
                if time.monotonic() > until:
                    raise
                gevent.sleep(_PAUSE)

    def _mark_started(self, response: Any) -> None:
        if not isinstance(response, dict):
            return
        sealed = encrypt_json(response, self._draft.project_id, response_place(self.response_id))
        try:
            started = database.write(partial(run_leases.mark_started, self.response_id, worker_name(), sealed))
            self.is_lost = not started
        except DatabaseError as error:
            # It shows as queued until it ends; nothing else depends on it.
            log.warning("responses.start_not_stored", response=self.response_id, error=type(error).__name__)


def failed_response(response: dict[str, Any], error: ApiError) -> dict[str, Any]:
    """Return a response that failed, from the one that was queued."""
    code = {429: "rate_limit_exceeded"}.get(error.status, "server_error" if error.status >= 500 else "invalid_prompt")
    return {**response, "status": "failed", "error": {"code": code, "message": error.message}}
