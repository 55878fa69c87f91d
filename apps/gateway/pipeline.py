"""The story of a request to a model, in order: who asks, what for, whether it may, who answers, what it cost.

Knows the order. Every decision lives in a module of its own; wire formats are the endpoint's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec
import structlog

from apps.billing.pricing import FREE, Cost, cost_of
from apps.catalog import snapshot
from apps.gateway import admission, candidates, outbox, record, routing, worker
from apps.gateway.attempts import Attempts
from apps.gateway.call import Call
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    Reply,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
)
from apps.gateway.canonical.fold import Fold
from apps.gateway.estimate import BYTES_PER_TOKEN
from apps.gateway.measure import measure
from apps.gateway.metrics import IN_FLIGHT
from apps.gateway.policy import Policy, policy_of
from apps.gateway.routing import Ranking
from apps.kernel.errors import ApiError, ClientGone, InternalError, Overloaded
from apps.kernel.ids import new_id
from apps.kernel.usage import Usage
from apps.logs.entry import Entry

log = structlog.get_logger(__name__)

# Policy and catalog may change while a request is let in; more often than this in a row means something is wrong.
_MAX_READINGS = 5


def open_chat(call: Call, route: str, token: str, read_request: Callable[[bytes], Chat]) -> ChatRun:
    """Return an admitted request, ready to run. Raises ApiError; then nothing was reserved and nothing is recorded."""
    started_at = time.monotonic()
    worker.start()
    policy = policy_of(token)
    chat = read_request(call.body())
    identifier = new_id()
    for _ in range(_MAX_READINGS):
        catalog = snapshot.current()
        try:
            fitting = candidates.resolve(policy, catalog, chat)
        except ApiError:
            if admission.knew_the_latest(policy, catalog, token):
                raise
            policy = policy_of(token)
            continue
        ranking = routing.rank(fitting, no_fallback=call.switched_on("x-no-fallback"))
        worst = admission.estimate(chat, fitting)
        entry = record.open_entry(identifier, route, policy, call, chat)
        record.choose(entry, ranking.candidates[0], fitting.requested_provider)
        if admission.admit(policy, catalog, token, worst, entry, record.note_of(entry)):
            attempts = Attempts(chat, ranking.candidates, call.departure(), strict=call.switched_on("x-strict"))
            return ChatRun(chat, policy, ranking, entry, attempts, worst.prompt_tokens, started_at)
        policy = policy_of(token)
    raise Overloaded("The gateway's configuration is changing; try again shortly", retry_after=1)


@dataclass(slots=True)
class ChatRun:
    """An admitted request: runs once, and is recorded once, however it ends."""

    chat: Chat
    policy: Policy
    ranking: Ranking
    entry: Entry
    attempts: Attempts
    prompt_estimate: int
    started_at: float
    _fold: Fold | None = None
    _usage: Usage | None = None
    _finish: Finished | None = None
    _written: int = 0
    _recorded: bool = field(default=False)

    def events(self) -> Generator[Event, None, None]:
        """Yield the answer's events and, last, the summary. The record is made before the summary is yielded.

        Raises ApiError as long as nothing was yielded; after that an error is the last event (`Failed`).
        """
        begun = False
        IN_FLIGHT.inc()
        if not self.chat.stream or self.policy.retention == "retain":
            self._fold = Fold()
        try:
            for event in self.attempts.run():
                self._watch(event)
                begun = True
                yield event
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
            log.exception("pipeline.failed", request_id=self.entry.request_id)
            failure = InternalError("The gateway failed to answer this request")
            self._end(failure)
            if not begun:
                raise failure from error
            yield Failed(error=failure)
        finally:
            IN_FLIGHT.dec()

    def reply(self) -> Reply:
        """Return the whole answer, for requests that do not stream."""
        return (self._fold or Fold()).reply()

    def _watch(self, event: Event) -> None:
        """Take note of what passes by: usage, the end, how much was written."""
        match event:
            case TextDelta() | ReasoningDelta():
                self._written += len(event.text)
            case ToolCallDelta():
                self._written += len(event.arguments)
            case ToolCallStarted():
                self._written += len(event.name)
            case Started():
                event.model = self.attempts.latest.model_id
                event.created = event.created or int(time.time())
                event.prompt_estimate = self.prompt_estimate
            case UsageReported():
                self._usage = event.usage
            case Finished():
                self._finish = event
            case Waiting():
                return
        if self._fold is not None:
            self._fold.add(event)

    def _complete(self) -> Summary:
        """Price and record an answer that came to its end."""
        usage = self._usage_so_far()
        # An empty answer is free, whatever the provider counts.
        empty = not self._written and not usage.completion_tokens and not usage.images
        cost = FREE if empty else cost_of(usage, self.attempts.latest.offer.prices)
        record.count(self.entry, usage, cost)
        finish = self._finish
        record.complete(
            self.entry, finish.reason if finish else None, finish.native if finish else None, self.policy.retention
        )
        self._push()
        return Summary(usage=usage, cost=_parts_of(cost), metadata=self._metadata())

    def _end(self, error: ApiError) -> None:
        """Record a request that did not come to its end. A client that left pays what was produced for it."""
        if self._recorded:
            return
        if error.status == 499 and self._written:
            usage = self._usage_so_far()
            record.count(self.entry, usage, cost_of(usage, self.attempts.latest.offer.prices))
        record.fail(self.entry, error, self.policy.retention)
        self._push()

    def _usage_so_far(self) -> Usage:
        """Return the provider's counts, else an estimate that is marked as one."""
        if self._usage is not None:
            return self._usage
        return Usage(input=self.prompt_estimate, output=-(-self._written // BYTES_PER_TOKEN), estimated=True)

    def _push(self) -> None:
        """Hand the record over, once; nothing that goes wrong here may spoil the answer."""
        self._recorded = True
        entry, latest = self.entry, self.attempts.latest
        record.choose(entry, latest, entry.requested_provider)
        entry.duration = round((time.monotonic() - self.started_at) * 1000)
        if self.chat.stream and self.attempts.first_content_at is not None:
            entry.time_to_first_token = round((self.attempts.first_content_at - self.started_at) * 1000)
        entry.response_size = self.attempts.received
        if self.policy.retention != "none":
            lost = {"warnings": self.attempts.losses} if self.attempts.losses else {}
            entry.routing_metadata = {**self.ranking.explanation, "routing": self.attempts.tried, **lost}
        try:
            if self.policy.retention == "retain":
                record.keep_answer(entry, self.reply())
            outbox.push(worker.name(), record.encode(entry))
        except Exception:
            log.exception("pipeline.not_recorded", request_id=entry.request_id, log_id=str(entry.id))
        measure(entry)

    def _metadata(self) -> dict[str, object]:
        entry = self.entry
        return {
            "requested_model": entry.requested_model,
            "requested_provider": entry.requested_provider,
            "used_model": entry.used_model,
            "used_provider": entry.used_provider,
            "underlying_used_model": entry.underlying_model,
            "routing": self.attempts.tried,
            **self.ranking.explanation,
            **({"warnings": msgspec.to_builtins(self.attempts.losses)} if self.attempts.losses else {}),
        }


def _parts_of(cost: Cost) -> dict[str, Decimal]:
    return {
        "total": cost.total,
        "input": cost.input,
        "output": cost.output,
        "cached_input": cost.cached_input,
        "request": cost.request,
    }
