"""Native jobs: gathered, handed to a provider's batch API, looked at until they have ended, and fetched.

A job's row is its state; the worker that polls it holds a lease on it. "Submitting" is written before the job is sent:
if its arrival was not recorded, the provider is searched for it before it is sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID

import gevent
import structlog
from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from gevent.monkey import is_module_patched

from apps.batches.models import BatchLine, BatchStatus, LineOutcome, NativeJob, NativeJobStatus, NativeState
from apps.batches.native import parked_lines
from apps.batches.native.formats import (
    JobState,
    NativeFormat,
    NativeLine,
    NotSure,
    SentJob,
    format_of,
    is_refusal,
)
from apps.batches.native.parked_lines import MAX_JOB_BYTES, MAX_JOB_LINES, NativeAnswer
from apps.batches.native.provider_api import MAX_CALL_SECONDS, NoCredential, ProviderApi, api_of, is_key_revoked
from apps.gateway.failures import UpstreamFailure
from apps.kernel.concurrency.fairness import FairTurns
from apps.kernel.errors import Overloaded, RateLimited, is_final
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import UnreadableSecretError

log = structlog.get_logger(__name__)

# Lease on a job that a worker polls: longer than the two calls of sending it.
LEASE: Final = timedelta(seconds=2 * MAX_CALL_SECONDS + 60)
# Between two looks at one that is gathered, and that runs: at first, and at most.
GATHERING, FIRST_LOOK, LATEST_LOOK = timedelta(seconds=1), timedelta(seconds=10), timedelta(minutes=5)
# After which a job that may have been sent is listed by its provider.
_LISTED: Final = timedelta(seconds=60)
# After this it is sent, even if lines of its batch have not been tried yet.
MAX_GATHERING: Final = timedelta(minutes=15)
# Failed polls after which its lines run as usual; more than a day, as the pauses grow.
MAX_FAILURES: Final = 300
# And so many where the provider refuses to show it.
MAX_REFUSALS: Final = 10
# Answers stored by one transaction, and jobs polled by one process at once.
_TOGETHER: Final = 100
_AT_ONCE: Final = 4
# Jobs of one organization among these: one tenant's many jobs leave room for another's.
_AT_ONCE_OF_ONE: Final = 3
# Characters of a failure that are logged.
_WORDS: Final = 200
_OPEN: Final = (NativeJobStatus.GATHERING, NativeJobStatus.SUBMITTING, NativeJobStatus.RUNNING)
# Jobs that this process looks at, by organization.
_under_way = Counter[UUID]()
TURNS: Final[FairTurns[UUID]] = FairTurns()


def advance_one() -> bool:
    """Look at the job whose turn it is, in the background where there is one; tell whether there was one.

    Raises DatabaseError.
    """
    job = database.write(_claim) if _under_way.total() < _AT_ONCE else None
    if job is None:
        return False
    if is_module_patched("socket"):
        gevent.spawn(_look_at, job)
    else:
        _look_at(job)
    return True


def _claim() -> NativeJob | None:
    """Take the job that has been due for longest of the organization whose turn it is."""
    now = timezone.now()
    due = NativeJob.objects.filter(status__in=_OPEN, next_look_at__lte=now)
    busy = [organization for organization, jobs in _under_way.items() if jobs >= _AT_ONCE_OF_ONE]
    heads = due.exclude(batch__organization_id__in=busy).order_by("batch__organization_id", "next_look_at")
    first = heads.distinct("batch__organization_id").values_list("pk", "batch__organization_id")
    for job_id, organization_id in TURNS.order(first, lambda head: head[1]):
        rows = NativeJob.objects.select_for_update(skip_locked=True, of=("self",)).select_related("batch")
        job = rows.filter(pk=job_id, status__in=_OPEN, next_look_at__lte=now).first()
        if job is not None:
            TURNS.take(organization_id)
            job.next_look_at = now + LEASE
            job.save(update_fields=["next_look_at"])
            return job
    return None


def _look_at(job: NativeJob) -> None:
    owner = job.batch.organization_id
    _under_way[owner] += 1
    try:
        _advance(job)
    except (UpstreamFailure, NotSure) as failure:
        _note_failure(job, failure)
    except NoCredential:
        log.warning("batches.native_without_credential", job=str(job.pk), provider=job.provider_id)
        _end(job)
    except (DatabaseError, Overloaded) as error:
        # Its lease ends, and a worker polls again.
        log.warning("batches.native_not_stored", job=str(job.pk), error=type(error).__name__)
    except Exception as error:
        log.exception("batches.native_failed", job=str(job.pk))
        _note_failure(job, error)
    finally:
        _under_way[owner] -= 1
        if not _under_way[owner]:
            del _under_way[owner]


def _advance(job: NativeJob) -> None:
    if job.status == NativeJobStatus.GATHERING:
        if _is_over(job):
            _end(job)
        elif _is_gathered(job):
            _submit(job)
        else:
            _wait(job, GATHERING)
        return
    api, form = api_of(job), format_of(job.format)
    if job.status == NativeJobStatus.SUBMITTING:
        found = form.find(api, _sent(job))
        if found is not None:
            _note_running(job, found)
        elif _is_over(job):
            _end(job)
        else:
            _send(job, api, form)
        return
    state = form.look(api, job.external_id)
    if state.is_ended:
        _fetch(job, api, form, state)
        return
    if job.cancelled_at is None and (_is_over(job) or is_key_revoked(job)):
        form.cancel(api, job.external_id)
        job.cancelled_at, job.looks = timezone.now(), 0
    job.looks, job.failures = job.looks + 1, 0
    _wait(job, min(FIRST_LOOK * 1.5 ** min(job.looks, 20), LATEST_LOOK))


def _is_over(job: NativeJob) -> bool:
    """Return whether the answers are no longer wanted: the batch was cancelled, or its window has ended."""
    return job.batch.status != BatchStatus.IN_PROGRESS or job.batch.expires_at <= timezone.now()


def _is_gathered(job: NativeJob) -> bool:
    """Return whether no line will come any more, or has to be waited for."""
    if job.lines >= MAX_JOB_LINES or job.size > MAX_JOB_BYTES - MAX_JOB_BYTES // 16:
        return True
    if timezone.now() - job.created_at > MAX_GATHERING:
        return True
    others = BatchLine.objects.filter(batch=job.batch, outcome=LineOutcome.OPEN, native_state=NativeState.NONE)
    return not database.read(others.exists)


def _submit(job: NativeJob) -> None:
    """Send a job for the first time, once it stands that it is on its way. Raises UpstreamFailure, NoCredential."""
    api, form = api_of(job), format_of(job.format)

    def begin() -> bool:
        row = NativeJob.objects.select_for_update().get(pk=job.pk)
        if row.status != NativeJobStatus.GATHERING:
            return False
        row.status, row.submitted_at = NativeJobStatus.SUBMITTING, timezone.now()
        row.save(update_fields=["status", "submitted_at"])
        # Lines may have come in meanwhile; none do from now on.
        job.status, job.submitted_at, job.lines = row.status, row.submitted_at, row.lines
        return True

    if database.write(begin):
        _send(job, api, form)


def _send(job: NativeJob, api: ProviderApi, form: NativeFormat) -> None:
    try:
        external_id = form.submit(api, _sent(job), list(_lines_of(job)))
    except UpstreamFailure as failure:
        if not is_refusal(failure):
            raise
        if failure.status == RateLimited.status:
            # It is sent again without a search; lines may come in meanwhile.
            job.status = NativeJobStatus.GATHERING
            database.write(partial(job.save, update_fields=["status"]))
            raise
        log.warning("batches.native_refused", job=str(job.pk), status=failure.status, words=failure.message)
        _end(job)
        return
    _note_running(job, external_id)


def _note_running(job: NativeJob, external_id: str) -> None:
    job.status, job.external_id, job.failures = NativeJobStatus.RUNNING, external_id, 0
    _wait(job, FIRST_LOOK)
    log.info("batches.native_submitted", job=str(job.pk), provider=job.provider_id, lines=job.lines)


def _fetch(job: NativeJob, api: ProviderApi, form: NativeFormat, state: JobState) -> None:
    """Keep what lines were answered, and have the others run as usual. Raises UpstreamFailure."""
    answered = 0
    for path in state.results:
        answers = _own(job, form.read_answers(api.lines(path)))
        for together in iter(partial(lambda rest: list(islice(rest, _TOGETHER)), answers), []):
            # If an answer comes twice, the first counts.
            first = dict(reversed(together))
            answered += database.write(partial(parked_lines.store_answers, job, first))
    log.info("batches.native_answered", job=str(job.pk), lines=job.lines, answered=answered)
    _end(job)
    for path in state.files:
        try:
            api.call("DELETE", path)
        except UpstreamFailure as failure:
            log.warning("batches.native_not_deleted", job=str(job.pk), status=failure.status)


def _own(job: NativeJob, answers: Iterator[tuple[str, NativeAnswer]]) -> Iterator[tuple[int, NativeAnswer]]:
    """Yield the results of lines of a job, by position.

    Left out are answers to other jobs' lines, and errors that another try may not meet, such as those of load: these
    lines run as requests.
    """
    for custom_id, answer in answers:
        marker, _, position = custom_id.partition("_")
        is_own = marker == job.pk.hex and position.isdecimal() and len(position) <= len(str(MAX_JOB_LINES))
        if is_own and (200 <= answer.status < 300 or is_final(answer.status)):
            yield int(position), answer


def _lines_of(job: NativeJob) -> Iterator[NativeLine]:
    """Yield the lines of a job; one that cannot be read any more is not sent, and is put back with the unanswered."""
    parked = BatchLine.objects.filter(native_job=job, native_state=NativeState.PARKED).order_by("position")
    after = -1
    while lines := _read(parked.filter(position__gt=after)):
        for line in lines:
            after, line.batch = line.position, job.batch
            with suppress(UnreadableSecretError):
                body = parked_lines.request_of(line).asked.body
                yield NativeLine(f"{job.pk.hex}_{line.position}", body)


def _read(rows: QuerySet[BatchLine]) -> list[BatchLine]:
    return database.read(lambda: list(rows[:_TOGETHER]))


def _sent(job: NativeJob) -> SentJob:
    return SentJob(job.pk, job.path, job.model_name, job.lines, job.submitted_at or job.created_at)


def _wait(job: NativeJob, pause: timedelta) -> None:
    job.next_look_at = timezone.now() + pause
    columns = ["status", "external_id", "next_look_at", "looks", "failures", "cancelled_at"]
    if job.status == NativeJobStatus.GATHERING:
        columns = ["next_look_at", "failures"]
    database.write(partial(job.save, update_fields=columns))


def _end(job: NativeJob) -> None:
    """Put back the lines without an answer, a piece in each transaction, and end the job with the last."""
    lines, has_ended = 0, False
    while not has_ended:
        put_back, has_ended = database.write(partial(_put_back_some, job))
        lines += put_back
    if lines:
        log.info("batches.native_put_back", job=str(job.pk), lines=lines)


def _put_back_some(job: NativeJob) -> tuple[int, bool]:
    """Put back a piece of a job's lines; return how many, and whether the job has ended."""
    with transaction.atomic():
        # No line is parked in the job meanwhile.
        row = NativeJob.objects.select_for_update().get(pk=job.pk)
        put_back = parked_lines.put_back_some(row)
        has_ended = put_back < parked_lines.MAX_TOGETHER
        if has_ended:
            row.status = NativeJobStatus.ENDED
            row.save(update_fields=["status"])
    return put_back, has_ended


def _note_failure(job: NativeJob, failure: Exception) -> None:
    job.failures += 1
    log.warning("batches.native_not_seen", job=str(job.pk), failures=job.failures, error=str(failure)[:_WORDS])
    try:
        is_closed = isinstance(failure, UpstreamFailure) and is_final(failure.status or 0)
        if job.failures > (MAX_REFUSALS if is_closed else MAX_FAILURES):
            _end(job)
        else:
            pause = min(FIRST_LOOK * 1.5 ** min(job.failures, 20), LATEST_LOOK)
            _wait(job, max(pause, _LISTED) if job.status == NativeJobStatus.SUBMITTING else pause)
    except (DatabaseError, Overloaded) as error:
        log.warning("batches.native_not_stored", job=str(job.pk), error=type(error).__name__)
