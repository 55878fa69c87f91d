"""An admitted request on its way to its end: the answer watched as it passes, priced, and recorded exactly once.

Knows what an answer amounts to. Must never choose who answers, nor know a wire format.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import msgspec
import structlog

from apps.billing.pricing import FREE, Bill, bill_at
from apps.billing.worker_leases import worker_name
from apps.gateway.access.policy import Policy
from apps.gateway.admission import admit
from apps.gateway.admission.admit import AdmissionGrant
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Failed, Finished, Reply, Started, Summary
from apps.gateway.canonical.fold import Fold
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.guard.response_guard import ResponseGuard
from apps.gateway.metrics.buffer import add
from apps.gateway.metrics.definitions import IN_FLIGHT
from apps.gateway.metrics.request_metrics import record_request_metrics
from apps.gateway.pictures import no_pictures
from apps.gateway.response_cache import CacheEntry
from apps.gateway.response_metadata import build_metadata, cost_breakdown
from apps.gateway.routing import failure_attribution
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.routing.ranking import Ranking
from apps.gateway.settlement import outbox, record
from apps.gateway.upstream.failover import Failover
from apps.gateway.upstream.hedge import losing_cost
from apps.kernel.errors import ApiError, ClientGone, InternalError
from apps.kernel.usage import Usage
from apps.logs.entry import Entry

log = structlog.get_logger(__name__)

# Fewer tokens than this say nothing about speed.
_TOKENS_THAT_TELL_SPEED = 16


class ChatRun(msgspec.Struct, eq=False):
    """An admitted request: runs once, and is recorded once, however it ends."""

    chat: Chat
    policy: Policy
    ranking: Ranking
    entry: Entry
    attempts: Failover
    meter: AnswerMeter
    started_at: float
    admitted: AdmissionGrant = msgspec.field(default_factory=AdmissionGrant)
    cache: CacheEntry | None = None
    guard: RequestGuard | None = None
    _fold: Fold | None = None
    _finish: Finished | None = None
    _recorded: bool = False

    def screen(self, guard: RequestGuard, size: int) -> None:
        """Hold so many bytes of a request against guardrails, which may mask it. Raises ApiError; then it has ended."""
        self.guard = guard
        try:
            guard.screen(self.chat, size)
        except ApiError as error:
            self._end(error)
            raise
        except Exception as error:
            failure = self._defect()
            self._end(failure)
            raise failure from error

    def events(self) -> Generator[Event, None, None]:
        """Yield the answer's events and, last, the summary. The record is made before the summary is yielded.

        Raises ApiError as long as nothing was yielded; after that an error is the last event (`Failed`).
        """
        begun = False
        add(IN_FLIGHT, 1)
        if not self.chat.stream or self.policy.retention == "retain":
            self._fold = Fold()
        try:
            for event in self._answer():
                self._watch(event)
                begun = True
                yield event
            if self.chat.drawing is not None and not self.meter.pictures:
                raise no_pictures(self._finish)
            summary = self._complete()
            begun = True
            yield summary
        except ApiError as error:
            self._end(error)
            if not begun:
                raise
            yield Failed(error=error)
        except GeneratorExit:
            self._end(ClientGone("The client closed the connection"))
            raise
        except Exception as error:
            failure = self._defect()
            self._end(failure)
            if not begun:
                raise failure from error
            yield Failed(error=failure)
        finally:
            add(IN_FLIGHT, -1)
            self.attempts.client_disconnect.close()
            if self.cache is not None:
                self.cache.close()

    def _defect(self) -> InternalError:
        """Log the exception that is being handled, and return what the client is told of it."""
        log.exception("pipeline.failed", request_id=self.entry.request_id)
        return InternalError("The gateway failed to answer this request")

    @property
    def cached(self) -> bool:
        """Whether the answer is one that was kept."""
        return self.cache is not None and self.cache.hit

    def _answer(self) -> Iterator[Event]:
        """Return the kept answer to the same question, else a provider's."""
        return self._asked() if self.cache is None else self._kept_or_new(self.cache)

    def _asked(self) -> Iterator[Event]:
        """Return a provider's answer, as far as it is paid for and may pass."""
        return self._let_through(self.meter.watched(self.attempts.run()))

    def _kept_or_new(self, cache: CacheEntry) -> Iterator[Event]:
        yield from self._let_through(self.meter.noted(cache.find()))
        if not cache.hit:
            for event in self._asked():
                cache.collect(event)
                yield event

    def _let_through(self, events: Iterator[Event]) -> Iterator[Event]:
        """Return what guardrails leave of an answer, where they look at answers."""
        if self.guard is None or not self.guard.compiled.scan_output:
            return events
        return ResponseGuard(self.guard, self.chat.n or 1, whole=not self.chat.stream).screen(events)

    def reply(self) -> Reply:
        """Return the whole answer, for requests that do not stream."""
        return (self._fold or Fold()).reply()

    def _watch(self, event: Event) -> None:
        """Take note of the answer's beginning and end, and of all of it where it is wanted whole."""
        if type(event) is Started:
            event.model = self.attempts.latest_candidate.model_id
            event.created = event.created or int(time.time())
            event.prompt_estimate = self.meter.prompt_estimate
        elif type(event) is Finished:
            self._finish = event
        if self._fold is not None:
            self._fold.add(event)

    def _complete(self) -> Summary:
        """Price and record an answer that came to its end."""
        usage = self.meter.used
        # An empty answer is free, whatever the provider counts.
        empty = not self.meter.written and not usage.completion_tokens and not usage.images
        record.set_provider(self.entry, self.attempts.latest_candidate, self.entry.requested_provider)
        cost = record.set_usage_and_cost(
            self.entry, self._bill(usage, "cached" if self.cached else "empty" if empty else "")
        )
        self.entry.cached = self.cached if self.cache is not None else None
        if self.cache is not None:
            self.cache.store()
        self._learn(usage)
        finish = self._finish
        record.complete(
            self.entry, finish.reason if finish else None, finish.native if finish else None, self.policy.retention
        )
        self._push()
        metadata = build_metadata(self.entry, self.attempts, self.ranking.explanation, self.guard, cached=self.cached)
        return Summary(usage=usage, cost=cost_breakdown(cost), metadata=metadata)

    def _end(self, error: ApiError) -> None:
        """Record a request that did not come to its end. A client that left pays what was produced for it."""
        if self._recorded:
            return
        record.set_provider(self.entry, self.attempts.latest_candidate, self.entry.requested_provider)
        if error.status == 499 and (self.meter.written or self.meter.pictures):
            record.set_usage_and_cost(self.entry, self._bill(self.meter.used))
        record.fail(self.entry, error, self.policy.retention)
        self._learn(None)
        self._push()

    def _bill(self, usage: Usage, waived: str = "") -> Bill:
        """Return the bill, with what a provider is paid that was asked too and closed: it has read the prompt."""
        latest, outrun = self.attempts.latest_candidate, self.attempts.hedge_loser
        lost = FREE
        if outrun is not None and outrun.credential.mode == latest.credential.mode:
            lost = losing_cost(outrun, self.meter.prompt_estimate)
        return bill_at(
            latest.offer.prices,
            used=usage,
            discount=latest.discount,
            outrun=lost.total,
            outrun_saved=lost.discount_savings,
            waived=waived,
        )

    def _learn(self, usage: Usage | None) -> None:
        """Tell the scoreboard how the providers did; `usage` is None when nobody answered.

        An answer that a content filter ended says nothing about the provider.
        """
        failure_attribution.record_failures(
            self.attempts.failure_evidence, answered=usage is not None, organization_id=self.policy.organization_id
        )
        current = self.attempts.current_call
        filtered = self._finish is not None and self._finish.reason == "content_filter"
        if usage is None or current is None or current.first_content_at is None or filtered:
            return
        streamed = self.chat.stream
        tokens = usage.completion_tokens if usage.completion_tokens >= _TOKENS_THAT_TELL_SPEED else 0
        CIRCUIT_BREAKERS.record_success(
            current.candidate.mapping,
            first_token_ms=round((current.first_content_at - current.started_at) * 1000) if streamed else None,
            tokens=tokens,
            seconds=time.monotonic() - (current.first_content_at if streamed else current.started_at),
        )

    def _push(self) -> None:
        """Hand the record over, once; nothing that goes wrong here may spoil the answer."""
        self._recorded = True
        entry = self.entry
        entry.duration = round((time.monotonic() - self.started_at) * 1000)
        if self.chat.stream and self.attempts.first_content_at is not None:
            entry.time_to_first_token = round((self.attempts.first_content_at - self.started_at) * 1000)
        entry.response_size = self.attempts.bytes_received
        entry.violations = self.guard.violations if self.guard is not None and self.guard.violations else None
        if self.policy.retention != "none":
            lost = {"warnings": self.attempts.losses} if self.attempts.losses else {}
            entry.routing_metadata = {**self.ranking.explanation, "routing": self.attempts.attempt_log, **lost}
        try:
            if self.policy.retention == "retain":
                record.keep_answer(entry, self.reply())
            hold, charge = self.meter.hold, record.charge_of(entry)
            shrunk = None if hold is None else admit.settle(hold, charge)
            outbox.enqueue(worker_name(), record.encode(entry), shrunk)
        except Exception:
            log.exception("pipeline.not_recorded", request_id=entry.request_id, log_id=str(entry.id))
        record_request_metrics(entry)
