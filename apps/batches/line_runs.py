"""Batch lines: answered by a Celery worker, a few at a time and under leases, each recorded and charged once.

Leases say which process answers which line, and who takes over when it dies. They are in PostgreSQL and go by its
clock: the process that holds the lease claims, renews, puts off and ends the line. A line goes through its endpoint
under a log id that it keeps however often it is begun: there is one row and one charge, whichever process answers it.

A provider may have answered a line whose caller may no longer get it: the key was revoked since, or a rule or the
catalog took the provider away. The caller gets the refusal, and pays for the usage: the line was admitted when it was
handed over. The answer's content is not stored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import gevent
import msgspec
import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Count, Exists, F, OuterRef, Q
from django.db.models.functions import Greatest, Now
from django.utils import timezone
from gevent.event import Event as Signal
from gevent.monkey import is_module_patched
from redis.exceptions import RedisError

from apps.batches.batch_rows import end_some_lines, has_keys_of_its_own, headers_of
from apps.batches.line_call import LineCall, LineResult, encrypt_refusal, encrypt_result, request_of
from apps.batches.models import RUNNING_STATUSES, Batch, BatchFormat, BatchLine, BatchStatus, LineOutcome, NativeState
from apps.batches.native import parked_lines
from apps.batches.native.line_holds import give_back
from apps.batches.native.parked_lines import NativeRequest
from apps.billing import ledger, reservations
from apps.billing.pricing import at_share, bill_at
from apps.billing.worker_leases import worker_name
from apps.gateway.access.policy import find_policy, token_of_key
from apps.gateway.canonical.events import UsageReported
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.gateway.client.http_request import ClientResponse
from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.chat.anthropic import CLIENT as ANTHROPIC
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.failures import UpstreamFailure
from apps.gateway.settlement import outbox, record, worker_lease
from apps.gateway.settlement.outbox import encode
from apps.gateway.upstream.batch_exchange import BatchAnswer, BatchHandover, HandedOver
from apps.kernel.errors import NO_RETRY, ApiError, InternalError, Overloaded
from apps.kernel.ids import new_id
from apps.kernel.postgres import database
from apps.kernel.prices import PriceCard
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.kernel.usage import Usage
from apps.kernel.valkey.redis import shard_of
from apps.logs.entry import Entry
from apps.organizations.models import Organization, RetentionLevel
from apps.responses.run_leases import LeasedWork

# Times that a line is begun before it is given up: one that kills its worker must not kill them all.
MAX_ATTEMPTS: Final = 5


# Batches whose lines are begun, whatever is known of the lines.
_MAY_BEGIN: Final = Q(status=BatchStatus.IN_PROGRESS, paused_until__lte=Now(), expires_at__gt=Now())


def claimable_batches() -> list[Batch]:
    """Return the batches that have lines to begin now, the oldest first: of organizations that keep content.

    Answers of a provider's batch API are processed even if the batch was cancelled: they have been paid.
    """
    keeping = Organization.objects.filter(retention_level=RetentionLevel.RETAIN)
    keeping = keeping.exclude(status=Organization.Status.DELETED)
    waiting = BatchLine.objects.filter(batch=OuterRef("pk"), outcome=LineOutcome.OPEN, lease_until__lte=Now())
    has_answers = Exists(waiting.filter(native_state=NativeState.ANSWERED))
    has_lines = Exists(waiting.exclude(native_state=NativeState.PARKED))
    rows = Batch.objects.filter(status__in=RUNNING_STATUSES, organization_id__in=keeping.values("pk"))
    return list(rows.filter(_MAY_BEGIN & Q(has_lines) | Q(has_answers)).order_by("created_at"))


def lines_under_way(organizations: Collection[UUID]) -> Counter[UUID]:
    """Return how many lines of each organization are answered just now, by whomever."""
    held = BatchLine.objects.filter(outcome=LineOutcome.OPEN, lease_until__gt=Now()).exclude(lease_owner="")
    counted = held.filter(batch__organization_id__in=organizations).order_by().values_list("batch__organization_id")
    return Counter(dict(counted.annotate(lines=Count("pk"))))


def claim(batch: Batch, owner: str, most: int, answered_here: Collection[int]) -> list[BatchLine]:
    """Claim at most `most` waiting lines for a process; return them in order.

    A line that was begun before keeps the id of its record; a new one gets its id now, which bears the time.
    """
    with transaction.atomic():
        rows = BatchLine.objects.select_for_update(skip_locked=True)
        waiting = rows.filter(batch=batch, outcome=LineOutcome.OPEN, lease_until__lte=Now())
        waiting = waiting.exclude(native_state=NativeState.PARKED)
        if not Batch.objects.filter(_MAY_BEGIN, pk=batch.pk).exists():
            waiting = waiting.filter(native_state=NativeState.ANSWERED)
        lines = list(waiting.exclude(pk__in=answered_here).order_by("position")[:most])
        for line in lines:
            line.batch, line.lease_owner = batch, owner
            line.is_log_id_inherited = line.log_id is not None and line.native_state != NativeState.ANSWERED
            line.attempts += 1
            line.log_id = line.log_id or new_id()
            line.lease_until = _lease_end()
        BatchLine.objects.bulk_update(lines, ["lease_owner", "lease_until", "attempts", "log_id"])
    return lines


def renew(owner: str, lines: Collection[int]) -> set[int]:
    """Keep a process's leases on what it answers; return those lines that are still its to answer."""
    mine = BatchLine.objects.filter(pk__in=lines, lease_owner=owner, outcome=LineOutcome.OPEN)
    mine.update(lease_until=_lease_end())
    return set(mine.values_list("pk", flat=True))


def end(line: BatchLine, owner: str, outcome: LineOutcome, sealed_result: str, *, is_held: bool = False) -> bool:
    """Store a line's outcome if it is still the owner's; return whether it was.

    `is_held`: credits are held for it, and no charge replaces the hold. Raises DatabaseError.
    """
    with transaction.atomic():
        mine = BatchLine.objects.filter(pk=line.pk, lease_owner=owner, outcome=LineOutcome.OPEN)
        was_mine = bool(mine.update(outcome=outcome, sealed_result=sealed_result, lease_owner=""))
        if was_mine and is_held and line.log_id is not None:
            give_back([line.log_id])
    return was_mine


def put_off(line: BatchLine, owner: str, seconds: float, pause: float, *, turned_away: bool = False) -> None:
    """Let a line wait for so many seconds and its whole batch for a pause; it counts as no attempt, and the next one
    has a record of its own.

    `turned_away` tells that a provider refused it for its load, which is counted; where that was its batch API, it is
    asked no more. A line that it has answered keeps its record, which has a hold; so does one that an earlier owner
    may have been charged for before it was lost.
    """
    with transaction.atomic():
        if turned_away:
            # Without a charge, the row of this attempt would make a later answer free.
            keeps_record = line.is_log_id_inherited and line.log_id is not None and ledger.is_charged(line.log_id)
        else:
            keeps_record = line.is_log_id_inherited or line.native_state == NativeState.ANSWERED
        mine = BatchLine.objects.filter(pk=line.pk, lease_owner=owner)
        was_mine = mine.update(
            lease_owner="",
            lease_until=Now() + timedelta(seconds=seconds),
            attempts=F("attempts") - 1,
            turned_away=F("turned_away") + int(turned_away),
            **({} if keeps_record else {"log_id": None}),
            **({"native_state": NativeState.DECLINED, "sealed_native": ""} if turned_away else {}),
        )
        if was_mine and turned_away and line.log_id is not None:
            give_back([line.log_id])
        paused_until = Greatest(F("paused_until"), Now() + timedelta(seconds=pause))
        Batch.objects.filter(pk=line.batch_id).update(paused_until=paused_until)


def end_some_unpaid(batch: Batch, sealed_refusal: str) -> int:
    """End a piece of the waiting lines of a batch with the same refusal; return how many. Raises DatabaseError."""
    with transaction.atomic():
        running = Batch.objects.select_for_update().filter(pk=batch.pk, status=BatchStatus.IN_PROGRESS)
        row = running.first()
        if row is None:
            return 0
        row.sealed_refusal = sealed_refusal
        row.save(update_fields=["sealed_refusal"])
        return end_some_lines(row, LineOutcome.UNPAID, timezone.now())


def hand_over(owner: str) -> None:
    """Let others take over at once what a process has not ended; it counts as no attempt."""
    mine = BatchLine.objects.filter(lease_owner=owner, outcome=LineOutcome.OPEN)
    mine.update(lease_until=Now(), attempts=F("attempts") - 1)


def _lease_end() -> Any:
    return Now() + timedelta(seconds=settings.BACKGROUND_LEASE)


# API keys whose pace is remembered.
_MAX_KEYS: Final = 10_000


class LinePace:
    """Lines answered at a time for each API key, in this process: fewer after a limit was met, then more again.

    Additive increase and multiplicative decrease share a limit fairly between processes.
    """

    def __init__(self) -> None:
        self._slowed: dict[UUID, float] = {}

    def most(self, api_key_id: UUID, fastest: int) -> int:
        """Return how many lines may be answered at a time."""
        return max(1, min(fastest, int(self._slowed.get(api_key_id, fastest))))

    def refused(self, api_key_id: UUID, under_way: int) -> None:
        """Take note that a limit was met while so many were under way."""
        if len(self._slowed) >= _MAX_KEYS:
            self._slowed.clear()
        self._slowed[api_key_id] = max(1.0, min(self._slowed.get(api_key_id, under_way), under_way) / 2)

    def answered(self, api_key_id: UUID, fastest: int) -> None:
        """Take note that a line was answered."""
        if (now := self._slowed.get(api_key_id)) is not None:
            # One more for each round of as many as are under way.
            self._slowed[api_key_id] = now + 1 / now
            if self._slowed[api_key_id] >= fastest:
                del self._slowed[api_key_id]


log = structlog.get_logger(__name__)

# Lines take one in so many of an organization's concurrent requests: the rest is for interactive requests.
_SHARE: Final = 4
# Statuses after which a line is retried, and the pause in seconds without a `retry-after`.
_WORTH_A_RETRY: Final = frozenset({429, 503, 529})
_RETRY_AFTER: Final = 5.0
_MAX_WAIT: Final = 600.0
# Times that providers may turn a line away before that is its result; each is a record, at no cost.
MAX_TURNED_AWAY: Final = 10
# Lines of a batch one after the other that credits or the key's limit do not cover, after which the rest is not tried.
_UNPAID: Final = 402
MAX_UNPAID: Final = 100
# Seconds that a result waits for PostgreSQL, and between two tries.
_PATIENCE: Final = 600.0
_PAUSE: Final = 1.0

# Lines that this process answers, by primary key.
JOBS: dict[int, LineJob] = {}
# Set when one of them has ended.
ENDED: Final = Signal()
PACE: Final = LinePace()
# By batch, how many of its lines one after the other nothing paid for; and how many batches are remembered.
UNPAID: Final = Counter[str]()
_MAX_REMEMBERED: Final = 10_000


class LineJob:
    """One line that this process answers."""

    def __init__(self, line: BatchLine) -> None:
        self.line = line
        self.switch = CancelSwitch()
        # Whether another process has the line, or it is gone: nothing more may be written.
        self.is_lost = False
        self._greenlet: gevent.Greenlet[..., None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether this process has stopped answering it."""
        return self.line.pk not in JOBS

    def start(self) -> None:
        """Begin to answer, in the background where there is one."""
        JOBS[self.line.pk] = self
        if is_module_patched("socket"):
            worker_lease.start()
            WORK.keep_leases()
            self._greenlet = gevent.spawn(self._run)
        else:
            self._run()

    def stop(self) -> None:
        """Have the provider's answer cut off."""
        self.is_lost = True
        self.switch.cancel()

    def abandon(self) -> None:
        """Let go of the line without a record, for who takes it over."""
        self.is_lost = self.switch.is_abandoned = True
        if self._greenlet is not None:
            self._greenlet.kill(block=False)

    def _run(self) -> None:
        try:
            if self.line.attempts > MAX_ATTEMPTS:
                self._end_failed(InternalError("The workers that answered this line were lost"))
            else:
                self.answer()
        except UnreadableSecretError:
            self._end_failed(InternalError("This line was encrypted with a key that is gone"))
        except Exception:
            # Its lease ends, and a process tries again, a few times.
            log.exception("batches.line_failed", batch=self.line.batch_id, line=self.line.position)
        finally:
            JOBS.pop(self.line.pk, None)
            ENDED.set()

    def answer(self) -> None:
        """Answer the line, or put it off where it is not its turn, or hand it over to a provider's batch API."""
        line, batch = self.line, self.line.batch
        call = LineCall(line, headers_of(batch), bytes(request_of(line).body), self.switch)
        answered = parked_lines.find_answered(line)
        call.batch_exchange = exchange = self._exchange_of(answered)
        try:
            response: ClientResponse = call.route.endpoint(call)
            body = b"".join(response.body)
        finally:
            call.release_bytes()
        if self.is_lost:
            return
        if isinstance(exchange, BatchHandover) and exchange.taken is not None:
            self._park(exchange.taken)
            return
        if _is_worth_a_retry(response) and (not call.is_admitted or line.turned_away < MAX_TURNED_AWAY):
            self._put_off(response, turned_away=call.is_admitted)
            return
        PACE.answered(batch.api_key_id, settings.BATCH_LINES_AT_ONCE)
        is_refused = answered is not None and not 200 <= response.status < 300
        if answered is not None and is_refused and not call.is_admitted:
            is_refused = not record_refused(answered, response.status)
        result = LineResult(response.status, msgspec.Raw(body))
        self._end(result, is_held=is_refused)
        self._note_payment(result, is_refused=response.status == _UNPAID and not call.is_admitted)

    def _note_payment(self, result: LineResult, *, is_refused: bool) -> None:
        """End the rest of the batch with a line's refusal, once it is plain that nothing pays for it any more."""
        batch = self.line.batch
        if not is_refused:
            UNPAID.pop(batch.pk, None)
            return
        if len(UNPAID) >= _MAX_REMEMBERED:
            UNPAID.clear()
        UNPAID[batch.pk] += 1
        if UNPAID[batch.pk] >= MAX_UNPAID or _has_no_credits(batch):
            sealed, ended = encrypt_refusal(batch, result), 0
            while count := database.write(partial(end_some_unpaid, batch, sealed)):
                ended += count
            UNPAID.pop(batch.pk, None)
            log.info("batches.unpaid", batch=batch.pk, lines=ended)

    def _exchange_of(self, answered: NativeRequest | None) -> BatchHandover | BatchAnswer | None:
        """Return how the line is exchanged with its provider, None where that is as a request's own."""
        if answered is not None:
            return BatchAnswer(answered.asked, answered.status, answered.answer)
        is_new = self.line.native_state == NativeState.NONE
        return BatchHandover(self.switch) if is_new and settings.NATIVE_BATCHES else None

    def _park(self, asked: HandedOver) -> None:
        """Hand the line over to its provider's batch API, with the hold of its admission.

        Without a note of that, in an outage of Valkey, it waits a little: nothing would cover it.
        """
        worker, log_id, shard = worker_name(), self.line.log_id, shard_of(self.line.batch.organization_id)
        try:
            note = None if log_id is None else reservations.find_note(worker, log_id, shard)
        except RedisError:
            note = None
        if log_id is None or note is None:
            self._insist(partial(put_off, self.line, worker, _RETRY_AFTER, _RETRY_AFTER))
            return
        database.write(partial(parked_lines.park, self.line, worker, asked, note))
        # The ledger holds it from here on; the sweeper releases the rest when this process ends.
        with suppress(RedisError):
            reservations.release([(worker, log_id)], shard)

    def _put_off(self, response: ClientResponse, *, turned_away: bool) -> None:
        line = self.line
        key = line.batch.api_key_id
        PACE.refused(key, sum(job.line.batch.api_key_id == key for job in JOBS.values()))
        pause = min(_retry_after(response), _MAX_WAIT)
        # Where a provider has too much to do, its other lines are asked before this one, whose turn comes ever later.
        wait = min(pause * 2**line.turned_away, _MAX_WAIT) if turned_away else pause
        self._insist(partial(put_off, line, worker_name(), wait, pause, turned_away=turned_away))

    def _end_failed(self, error: ApiError) -> None:
        dialect = ANTHROPIC if self.line.batch.format == BatchFormat.ANTHROPIC else OPENAI
        is_held = self.line.native_state == NativeState.ANSWERED
        self._end(LineResult(error.status, msgspec.Raw(dialect.write_error(error))), is_held=is_held)

    def _end(self, result: LineResult, *, is_held: bool = False) -> None:
        outcome = LineOutcome.SUCCEEDED if 200 <= result.status < 300 else LineOutcome.ERRORED

        def write_end() -> None:
            sealed = encrypt_result(self.line, result)
            end(self.line, worker_name(), outcome, sealed, is_held=is_held)

        self._insist(write_end)

    def _insist(self, write: Callable[[], None]) -> None:
        """Write how it went. It is charged already: a result must not be lost for a database that is away."""
        until = time.monotonic() + _PATIENCE
        while not self.is_lost:
            try:
                database.write(write)
                return
            except (DatabaseError, Overloaded) as error:
                log.warning("batches.end_not_stored", batch=self.line.batch_id, error=type(error).__name__)
                if time.monotonic() > until:
                    raise
                gevent.sleep(_PAUSE)


def begin_lines() -> int:
    """Begin to answer lines, as many as there is room for; return how many. Raises DatabaseError.

    Organizations share the room; those that have fewer lines under way come first.
    """
    room: int = settings.BATCH_LINES_AT_ONCE - len(JOBS)
    batches = database.read(claimable_batches) if room > 0 else []
    if not batches:
        return 0
    organizations = {batch.organization_id for batch in batches}
    under_way = database.read(partial(lines_under_way, organizations))
    share, begun = max(1, room // len(organizations)), Counter[UUID]()
    for batch in sorted(batches, key=lambda batch: under_way[batch.organization_id]):
        owner = batch.organization_id
        most = min(share - begun[owner], room - begun.total(), _most_at_once(batch) - under_way[owner] - begun[owner])
        if most > 0:
            lines = database.write(partial(claim, batch, worker_name(), most, list(JOBS)))
            begun[owner] += len(lines)
            for line in lines:
                LineJob(line).start()
    return begun.total()


def _most_at_once(batch: Batch) -> int:
    """Return how many lines may be answered at a time for a batch's organization, at the pace of its API key."""
    fastest = _most_of_one()
    try:
        concurrency = find_policy(token_of_key(batch.api_key_id)).concurrency
    except ApiError:
        # The lines find out, each by itself.
        return fastest
    if concurrency is not None:
        fastest = min(fastest, max(1, concurrency // _SHARE))
    return PACE.most(batch.api_key_id, fastest)


def _most_of_one() -> int:
    """Return how many lines of one organization may be answered at a time: a fifth of the room is for others."""
    room: int = settings.BATCH_LINES_AT_ONCE
    return max(1, room - max(1, room // 5))


def _has_no_credits(batch: Batch) -> bool:
    """Return whether the batch's lines are paid with credits, and none are left."""
    try:
        policy = find_policy(token_of_key(batch.api_key_id))
    except ApiError:
        return False
    rows = Organization.objects.filter(pk=batch.organization_id, credits__lte=0)
    return not has_keys_of_its_own(policy) and database.read(rows.exists)


def _is_worth_a_retry(response: ClientResponse) -> bool:
    """Return whether a line may be answered later: a refusal that ends some time says when, be it tomorrow."""
    says_when = any(name.lower() == "retry-after" for name, _ in response.headers)
    return response.status in _WORTH_A_RETRY and (says_when or NO_RETRY not in response.headers)


def _retry_after(response: ClientResponse) -> float:
    for name, value in response.headers:
        if name.lower() == "retry-after" and value.isdecimal():
            return float(value)
    return _RETRY_AFTER


WORK: Final = LeasedWork(
    "batches",
    JOBS,
    lambda owner, lines: database.write(partial(renew, owner, lines)),
    lambda owner: database.write(partial(hand_over, owner)),
)


_WORDS = "The provider had answered when the request was refused"


def record_refused(answered: NativeRequest, status: int) -> bool:
    """Record and bill an answer that is refused with a status; tell whether there was one to bill."""
    usage = _usage_of(answered)
    if usage is None or not answered.note:
        return False
    entry = msgspec.json.decode(answered.note, type=Entry)
    asked = answered.asked
    usual = msgspec.convert(entry.prices or {}, PriceCard, strict=False)
    card = at_share(usual, asked.price_share, asked.cached_share)
    bill = bill_at(card, used=usage, discount=asked.discount, batch_share=asked.price_share)
    record.set_usage_and_cost(entry, bill)
    record.fail(entry, ApiError(_WORDS, status=status), entry.retention_level)
    outbox.enqueue(worker_name(), encode(entry), None)
    return True


def _usage_of(answered: NativeRequest) -> Usage | None:
    """Return what a provider says was used, None where it refused, or says nothing that can be read."""
    dialect = find_dialect(answered.asked.dialect)
    if dialect is None or not 200 <= answered.status < 300:
        return None
    usage = None
    try:
        for event in dialect.read_reply(answered.answer):
            if type(event) is UsageReported:
                usage = event.usage
    except (UpstreamFailure, ApiError, LookupError, TypeError, ValueError, RecursionError):
        return usage
    return usage
