"""Background responses: answered by a web worker without a client on the line, under a lease, and charged once.

A run goes through the ordinary pipeline under a log id of its own that it keeps however often it is begun: whichever
worker answers it in the end, there is one row and one charge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any, Final
from uuid import UUID

import gevent
import structlog
from gevent.event import Event as Signal
from gevent.monkey import is_module_patched
from redis.exceptions import RedisError

from apps.billing.worker_leases import worker_name
from apps.gateway.access.policy import token_of_key
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.gateway.endpoints.responses import answer
from apps.kernel.errors import ApiError, InternalError
from apps.kernel.ids import new_id
from apps.kernel.postgres import database
from apps.responses import event_log, run_leases
from apps.responses.background_state import BackgroundRequest, BackgroundState
from apps.responses.leased_work import LeasedWork
from apps.responses.models import BackgroundRun
from apps.responses.response_rows import ResponseDraft
from apps.responses.run_leases import RunRequest

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
        event_log.drop(draft.organization_id, draft.id)
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
