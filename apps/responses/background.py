"""Background responses: answered by a web worker without a client on the line, under a lease, and charged once.

A run goes through the ordinary pipeline under a log id of its own that it keeps however often it is begun: whichever
worker answers it in the end, there is one row and one charge. Its events go into the log, its end into the row of its
response; the row is written first, then the event.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any, Final
from uuid import UUID

import gevent
import msgspec
import structlog
from django.db import DatabaseError
from gevent.event import Event as Signal
from gevent.monkey import is_module_patched
from redis.exceptions import RedisError

from apps.billing.worker_leases import worker_name
from apps.gateway.access.policy import token_of_key
from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.endpoints.response_state import ResponseState
from apps.gateway.endpoints.responses import answer
from apps.gateway.routing.request_profile import SESSION_HEADERS
from apps.kernel.errors import ApiError, InternalError
from apps.kernel.ids import new_id
from apps.kernel.postgres import database
from apps.kernel.rest.routes import route_table
from apps.kernel.secrets.encryption import decrypt_json, encrypt_json
from apps.kernel.valkey.cache_store import CacheShare
from apps.responses import event_stream, run_leases
from apps.responses.event_stream import LAST_EVENTS, EventLogWriter
from apps.responses.models import BackgroundRun
from apps.responses.response_rows import (
    ResponseDraft,
    encrypt_for_conversation,
    encrypt_outcome,
    output_of,
    response_place,
)
from apps.responses.run_leases import LeasedWork, RunRequest

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


log = structlog.get_logger(__name__)

# Concurrent runs of one worker, and of one organization in it; more wait for a worker with room.
MAX_RUNS: Final = 100
MAX_RUNS_OF_ONE: Final = 80
# Seconds between two searches for waiting runs.
_LOOK_SECONDS: Final = 5.0
# Statuses after which a run is retried, and the pause in seconds without a `retry-after`.
_WORTH_A_RETRY: Final = frozenset({429, 503})
_RETRY_AFTER: Final = 5.0

# Runs that this process answers, by the id of the response.
JOBS: dict[str, BackgroundJob] = {}


class BackgroundJob:
    """One background response that this process answers."""

    def __init__(self, state: BackgroundState, api_key_id: UUID, log_id: UUID, request: RunRequest) -> None:
        self.state = state
        self.switch = CancelSwitch()
        # Set once the run was admitted, or refused.
        self.admitted = Signal()
        # Why the run was not admitted.
        self.refusal: ApiError | None = None
        self._token = token_of_key(api_key_id)
        self._log_id, self._request = log_id, request
        self._greenlet: gevent.Greenlet[..., None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its end is stored."""
        return self.state.has_ended

    def start(self) -> None:
        """Begin to answer, in the background where there is one."""
        JOBS[self.state.response_id] = self
        _WORK.keep_leases()
        if is_module_patched("socket"):
            self._greenlet = gevent.spawn(self._run)
        else:
            self._run()

    def stop(self) -> None:
        """Cut off the provider's answer, and charge for its part so far."""
        self.switch.cancel()
        self.state.is_lost = True

    def abandon(self) -> None:
        """Let go of the run without a record, for who takes it over."""
        self.switch.is_abandoned = True
        self.state.is_lost = True
        if self._greenlet is not None:
            self._greenlet.kill(block=False)

    def _run(self) -> None:
        call = BackgroundRequest(self._request, self._log_id, self.switch, self.admitted)
        call.response_state = self.state
        try:
            response = answer(call, self._token)
            try:
                for _ in response.body:
                    pass
            finally:
                close = getattr(response.body, "close", None)
                if close is not None:
                    close()
        except ApiError as error:
            self.state.failed(error)
        except Exception:
            log.exception("responses.background_failed", response=self.state.response_id)
            self.state.failed(InternalError("The gateway failed to answer this request"))
        finally:
            # Not as the last step: an abandoned run must not wait for anything.
            JOBS.pop(self.state.response_id, None)
            call.release_bytes()
        self._settle_error()

    def _settle_error(self) -> None:
        """Report a refusal to the caller that waits for the admission; end the run for any later error."""
        error = self.state.error
        if not self.admitted.is_set():
            self.refusal = error or InternalError("The gateway failed to answer this request")
            self.admitted.set()
        elif error is not None and not self.state.has_ended and not self.state.is_lost:
            self.state.end_failed(error)


def begin(response: dict[str, Any], draft: ResponseDraft, request: RunRequest) -> None:
    """Store a queued response and begin to answer it. Raises ApiError when it is not admitted; then nothing is stored.

    Raises DatabaseError when it cannot be stored.
    """
    log_id, state = new_id(), BackgroundState(draft, request, is_new=True)
    state.queued(response)
    has_room = len(JOBS) < MAX_RUNS and _own_runs()[draft.organization_id] < MAX_RUNS_OF_ONE
    database.write(partial(run_leases.begin, draft, log_id, request, worker_name() if has_room else None))
    if not has_room:
        return
    job = BackgroundJob(state, draft.api_key_id, log_id, request)
    job.start()
    job.admitted.wait()
    if job.refusal is not None:
        database.write(partial(run_leases.discard, draft.id))
        event_stream.drop(draft.organization_id, draft.id)
        raise job.refusal


def stop_here(response_id: str) -> None:
    """Stop a run at once if it is this process's; another's process finds out when it renews its lease."""
    job = JOBS.get(response_id)
    if job is not None:
        job.stop()


def take_over() -> int:
    """Answer responses whose worker is gone; return how many. Raises DatabaseError."""
    room, own = MAX_RUNS - len(JOBS), _own_runs()
    full = [organization for organization, runs in own.items() if runs >= MAX_RUNS_OF_ONE]
    of_one = MAX_RUNS_OF_ONE - max((own[one] for one in own.keys() - full), default=0)
    take = partial(run_leases.take_over, worker_name(), room, list(JOBS), full=full, of_one=of_one)
    runs = database.write(take) if room > 0 else []
    for run in runs:
        log.info("responses.taken_over", response=run.pk, attempt=run.attempts)
        _answer_again(run)
    return len(runs)


def _own_runs() -> Counter[UUID]:
    """Return how many runs of each organization this process answers."""
    return Counter(job.state.organization_id for job in JOBS.values())


def _answer_again(run: BackgroundRun) -> None:
    row = run.response
    try:
        request = run_leases.request_of(run)
        state = BackgroundState(run_leases.draft_of_row(row), request, is_new=False)
    except (ValueError, RedisError) as error:
        # Encrypted with a key that is gone, or the cache is away: the lease ends, and another worker tries again.
        log.warning("responses.not_taken_over", response=run.pk, error=type(error).__name__)
        return
    if run.attempts > run_leases.MAX_ATTEMPTS:
        state.end_failed(InternalError("The workers that answered this response were lost"))
        return
    job = BackgroundJob(state, row.api_key_id, run.log_id, request)
    job.start()
    if is_module_patched("socket"):
        gevent.spawn(_end_refused, job)
    else:
        _end_refused(job)


def _end_refused(job: BackgroundJob) -> None:
    """Wait until a run without a waiting caller is admitted; put it off or end it if it is refused."""
    job.admitted.wait()
    error = job.refusal
    if error is None or job.state.is_lost:
        return
    if error.status in _WORTH_A_RETRY:
        pause = error.retry_after or _RETRY_AFTER
        database.write(partial(run_leases.put_off, job.state.response_id, worker_name(), pause))
    else:
        job.state.end_failed(error)


def look_for_runs() -> None:
    """Take up waiting runs, for as long as the process lives."""
    while True:
        gevent.sleep(_LOOK_SECONDS)
        try:
            if not database.is_away():
                take_over()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next look may go better
            log.warning("responses.not_looked", error=type(error).__name__)


def start() -> None:
    """Start to take up waiting runs, in the background."""
    gevent.spawn(look_for_runs)


def _renew(owner: str, response_ids: Collection[str]) -> set[str]:
    """Renew the leases of a worker, and the events of its runs; return the runs that are still its own."""
    mine = database.write(partial(run_leases.renew, owner, response_ids))
    for response_id in mine:
        if (job := JOBS.get(response_id)) is not None:
            job.state.prolong_events()
    return mine


_WORK = LeasedWork("responses", JOBS, _renew, lambda owner: database.write(partial(run_leases.hand_over, owner)))
