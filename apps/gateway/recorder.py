"""Recorder: ends a request exactly once: prices it, settles its reservation, puts its record into the outbox.

Also reports to the circuit breakers how the providers did. The transcript is the answer that the client gets, behind
guardrails: how it ended, and all of it where it is needed whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import structlog

from apps.billing.limit_holds import NO_USE
from apps.billing.pricing import FREE, Bill, Cost, bill_at
from apps.billing.worker_leases import worker_name
from apps.gateway.access.policy import Policy
from apps.gateway.admission import admit
from apps.gateway.admission.worst_case import prices_of_passes
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.chat import USUAL_TIER, Chat, DroppedField
from apps.gateway.canonical.events import (
    AudioBytes,
    Event,
    Finished,
    Reply,
    ReplyBuilder,
    Started,
    Summary,
    ToolCallStarted,
)
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.guard.tool_call_watch import ToolCallWatch
from apps.gateway.metrics import record_request_metrics
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS, is_scored, record_failures
from apps.gateway.routing.ranking import Ranking
from apps.gateway.settlement import outbox, record
from apps.gateway.settlement.outbox import charge_of, encode
from apps.gateway.settlement.record import count_call
from apps.gateway.tracing import tracer
from apps.gateway.tracing.genai_attributes import answer_of
from apps.gateway.upstream.failover import Failover, losing_cost
from apps.kernel.concurrency.native_thread_pool import offload_or_run
from apps.kernel.errors import ApiError, InternalError
from apps.kernel.money import ZERO
from apps.kernel.usage import Usage
from apps.limits.applied import AppliedLimit, AppliedLimits, describe, resets_at
from apps.logs.answers import MAX_MEDIA_BYTES
from apps.logs.entry import Entry, ProviderOutcome


class AnswerTranscript(msgspec.Struct, eq=False):
    """One answer's transcript: `fold` joins its events where it is needed whole, `finish` is how it ended."""

    attempts: Failover
    prompt_estimate: int
    fold: ReplyBuilder | None
    log_id: UUID
    # Whether the record keeps the answer's content.
    keeps_content: bool = False
    finish: Finished | None = None
    # Calls of tools by their names, None without any.
    call_counts: dict[str, int] | None = None
    # Audio of a text that is read aloud; None without any, and once it is too large for the record.
    speech: bytearray | None = None
    # Bytes of that audio.
    speech_size: int = 0
    # Checks the answer's tool calls where a guardrail does.
    call_watch: ToolCallWatch | None = None

    def add(self, event: Event) -> None:
        """Add an event before it is passed on. The first one gets the model, the time and the prompt's estimate."""
        note = _NOTES.get(type(event))
        if note is not None:
            note(self, event)
        if self.call_watch is not None:
            self.call_watch.take(event)
        if self.fold is not None:
            self.fold.add(event)

    def reply(self) -> Reply:
        """Return the whole answer so far; an empty one where it is not needed whole."""
        return (self.fold or ReplyBuilder()).reply()

    def _note_start(self, event: Started) -> None:
        candidate = self.attempts.latest_candidate
        if (trace := self.attempts.trace) is not None and trace.answer is None:
            trace.answer = answer_of(event)
        event.model, event.provider, event.log_id = candidate.model_id, candidate.provider_id, self.log_id.hex
        event.created = event.created or int(time.time())
        event.prompt_estimate = self.prompt_estimate

    def _note_finish(self, event: Finished) -> None:
        self.finish = event

    def _note_call(self, event: ToolCallStarted) -> None:
        if self.call_counts is None:
            self.call_counts = {}
        count_call(self.call_counts, event.name)

    def _note_audio(self, event: AudioBytes) -> None:
        if not self.keeps_content:
            return
        self.speech_size += len(event.data)
        if self.speech_size > MAX_MEDIA_BYTES:
            self.speech = None
        else:
            self.speech = bytearray() if self.speech is None else self.speech
            self.speech += event.data


# Most events are none of these.
_NOTES: dict[type[Event], Callable[[AnswerTranscript, Any], None]] = {
    Started: AnswerTranscript._note_start,
    Finished: AnswerTranscript._note_finish,
    ToolCallStarted: AnswerTranscript._note_call,
    AudioBytes: AnswerTranscript._note_audio,
}


log = structlog.get_logger(__name__)

# Fewer tokens than this say nothing about speed.
_TOKENS_THAT_TELL_SPEED = 16


class Recorder(msgspec.Struct, eq=False):
    """One request's recorder: the first call of `complete` or `fail` records it; later ones never do."""

    chat: Chat
    policy: Policy
    ranking: Ranking
    entry: Entry
    attempts: Failover
    meter: AnswerMeter
    transcript: AnswerTranscript
    guard: RequestGuard | None
    # On the monotonic clock.
    started_at: float
    recorded: bool = False
    # Inputs that were answered from the cache.
    kept_inputs: int = 0
    # The limits that count the request, None without any; and those that it exceeds and that refuse nothing.
    limits: AppliedLimits | None = None
    warned: tuple[AppliedLimit, ...] = ()

    def complete(self, *, cached: bool | None, kept_inputs: int = 0) -> Summary:
        """Price and record an answer that came to its end; return the summary for the client.

        `cached`: whether the cache had all of it, None without a cache; of embeddings, `kept_inputs` tells of how many
        inputs. Raises RuntimeError if it has been recorded.
        """
        if self.recorded:
            raise RuntimeError("The request has been recorded")
        self.kept_inputs = kept_inputs
        usage = self.meter.used
        # An empty answer is free, whatever the provider counts; a recording without speech was transcribed all the
        # same.
        written = self.meter.written or usage.completion_tokens or usage.images
        empty = not written and not usage.audio_milliseconds
        self._note_provider()
        cost = record.set_usage_and_cost(
            self.entry, self._bill(usage, "cached" if cached else "empty" if empty else "")
        )
        self.entry.cached = cached
        self._report_providers(usage)
        finish = self.transcript.finish
        record.complete(
            self.entry, finish.reason if finish else None, finish.native if finish else None, self.policy.retention
        )
        self._settle_and_enqueue()
        kept: dict[str, Any] = {**({"cached": True} if cached else {}), **self._cached_inputs}
        if self.warned:
            kept["warnings"] = msgspec.to_builtins(self._warnings)
        metadata = build_metadata(self.entry, self.attempts, self.ranking.explanation, self.guard, kept)
        return Summary(
            usage=usage,
            cost=cost_breakdown(cost),
            metadata=metadata,
            duration=self.entry.duration or 0,
            time_to_first_token=self.entry.time_to_first_token,
        )

    def fail(self, error: ApiError) -> None:
        """Record a request that did not come to its end.

        A client that left pays for its partial answer, and so does one that received an image before its stream failed.
        """
        if self.recorded or self.attempts.client_disconnect.is_abandoned:
            return
        self._note_provider()
        if error.status == 499:
            self.attempts.note_canceled()
        left = error.status == 499 and (self.meter.written or self.meter.images)
        if left or (self.chat.stream and self.meter.images):
            record.set_usage_and_cost(self.entry, self._bill(self.meter.used))
        record.fail(self.entry, error, self.policy.retention)
        self._report_providers(None)
        self._settle_and_enqueue()

    def fail_unexpectedly(self) -> InternalError:
        """Log the exception that is being handled, record the failure, and return the client's error."""
        log.exception("pipeline.failed", request_id=self.entry.request_id)
        error = InternalError("The gateway failed to answer this request")
        self.fail(error)
        return error

    def _note_provider(self) -> None:
        """Write down who answers, where it is not the first candidate, which the record has named since it began."""
        latest = self.attempts.latest_candidate
        if latest is not self.ranking.candidates[0]:
            record.set_provider(self.entry, latest, self.entry.requested_provider)

    @property
    def _warnings(self) -> list[DroppedField]:
        """The client's fields that are left out, and the limits that the request exceeds."""
        exceeded = [DroppedField("limit", f"over the {describe(one)}; {resets_at(one)}") for one in self.warned]
        return [*self.attempts.dropped_fields, *exceeded]

    @property
    def _cached_inputs(self) -> dict[str, int]:
        """How many inputs the cache had, as log and metadata say it."""
        return {"cached_inputs": self.kept_inputs} if self.kept_inputs else {}

    def _bill(self, usage: Usage, waived: str = "") -> Bill:
        """Return the bill, with what a provider is paid that was asked too and closed: it has read the prompt."""
        latest, loser = self.attempts.latest_candidate, self.attempts.hedge_loser
        losers_cost = FREE
        if loser is not None and loser.credential.mode == latest.credential.mode:
            losers_cost = losing_cost(loser, self.meter.prompt_estimate, self.chat)
        prices = latest.offer.prices
        if usage.service_tier and usage.service_tier != USUAL_TIER and usage.service_tier not in prices.service_tiers:
            log.warning("recorder.unpriced_tier", mapping=latest.mapping, service_tier=usage.service_tier)
        return bill_at(
            prices,
            used=usage,
            models=prices_of_passes(usage, latest.offer) if usage.passes else {},
            discount=latest.discount,
            hedge_cost=losers_cost.total,
            hedge_savings=losers_cost.discount_savings,
            waived=waived,
            batch_share=latest.batch_share,
        )

    def _report_providers(self, usage: Usage | None) -> None:
        """Report to the circuit breakers and the record how the providers did; `usage` is None when none answered.

        An answer that a content filter ended says nothing about the provider.
        """
        evidence = self.attempts.failure_evidence
        record_failures(evidence, answered=usage is not None, organization_id=self.policy.organization_id)
        outcomes = [_failure_at(one.mapping) for one in evidence if is_scored(one.mapping)]
        if usage is not None and (success := self._report_success(usage)) is not None:
            outcomes.append(success)
        self.entry.outcomes = outcomes or None

    def _report_success(self, usage: Usage) -> ProviderOutcome | None:
        """Report an answer to the circuit breakers; return its outcome, None where it says nothing of the provider."""
        current, finish = self.attempts.current_call, self.transcript.finish
        filtered = finish is not None and finish.reason == "content_filter"
        begun_at = None if current is None else current.outcome.first_content_at
        if current is None or begun_at is None or filtered:
            return None
        candidate, streamed = current.inputs.candidate, self.chat.stream
        first_token_ms = round((begun_at - current.started_at) * 1000) if streamed else None
        tokens = usage.completion_tokens if usage.completion_tokens >= _TOKENS_THAT_TELL_SPEED else 0
        seconds = time.monotonic() - (begun_at if streamed else current.started_at)
        CIRCUIT_BREAKERS.record_success(
            candidate.mapping, first_token_ms=first_token_ms, tokens=tokens, seconds=seconds
        )
        if not is_scored(candidate.mapping):
            return None
        return ProviderOutcome(
            model=candidate.model_id,
            provider=candidate.provider_id,
            succeeded=True,
            first_token=first_token_ms,
            tokens=tokens,
            writing=max(round(seconds * 1000), 1) if tokens else 0,
        )

    def _settle_and_enqueue(self) -> None:
        """Settle the reservation and enqueue the record, once; nothing that goes wrong here may spoil the answer."""
        self.recorded = True
        entry = self.entry
        entry.duration = round((time.monotonic() - self.started_at) * 1000)
        if self.chat.stream and self.attempts.first_content_at is not None:
            entry.time_to_first_token = round((self.attempts.first_content_at - self.started_at) * 1000)
        entry.response_size = self.attempts.bytes_received
        if self.guard is not None and self.guard.pending:
            self.guard.finish()
        if self.transcript.call_watch is not None:
            self.transcript.call_watch.check(self.attempts.size)
        entry.violations = self.guard.violations if self.guard is not None and self.guard.violations else None
        if self.policy.retention != "none":
            entry.tool_call_counts = self.transcript.call_counts
            warned = self._warnings if self.warned else self.attempts.dropped_fields
            warnings = {"warnings": warned} if warned else {}
            asked = {"guardrail_calls": self.guard.outside_calls} if self.guard and self.guard.outside_calls else {}
            marked = {} if self.transcript.call_watch is None else self.transcript.call_watch.log_fields()
            attempts = self.attempts.timed_attempts(self.started_at)
            routing = {"routing": attempts, **warnings, **self._cached_inputs, **asked, **marked}
            entry.routing_metadata = {**self.ranking.explanation, **routing}
        settling_at = time.monotonic()
        use = NO_USE
        if self.limits is not None:
            counted, use = self.limits.count(
                model_id=entry.used_model,
                provider_id=entry.used_provider,
                cost=entry.cost or ZERO,
                input_tokens=entry.prompt_tokens or 0,
                output_tokens=entry.completion_tokens or 0,
            )
            if counted is not None:
                entry.limits = counted
        try:
            encoded = self._encode()
            hold, charge = self.meter.hold, charge_of(entry)
            settled = None if hold is None else admit.settle(hold, charge, use)
            outbox.enqueue(worker_name(), encoded, settled)
        except Exception:
            log.exception("pipeline.not_recorded", request_id=entry.request_id, log_id=str(entry.id))
        record_request_metrics(entry)
        if self.attempts.trace is not None:
            tracer.end_trace(self.attempts.trace, entry, self.chat, settling_at, self.meter.used.service_tier)

    def _encode(self) -> bytes:
        """Return the record as JSON, with the request's and answer's content where it is retained: off the loop if
        large."""
        if self.policy.retention != "retain":
            return encode(self.entry)
        size = self.attempts.size + self.meter.answer_bytes
        speech = bytes(self.transcript.speech) if self.transcript.speech else None
        return offload_or_run(size, record.encode_with_answer, self.entry, self.chat, self.transcript.reply, speech)


def _failure_at(mapping: str) -> ProviderOutcome:
    provider, _, model = mapping.partition("/")
    return ProviderOutcome(model=model, provider=provider, succeeded=False)


# Parts of a cost that are shown only where they are not zero.
_RARE_PARTS = ("cache_write", "image_input", "image_output", "web_search")


def build_metadata(
    entry: Entry, attempts: Failover, explanation: dict[str, Any], guard: RequestGuard | None, kept: dict[str, Any]
) -> dict[str, object]:
    """Return the answer's `metadata`, with what is `kept` of it; what there is nothing to say of is left out."""
    return {
        "requested_model": entry.requested_model,
        "requested_provider": entry.requested_provider,
        "used_model": entry.used_model,
        "used_provider": entry.used_provider,
        "underlying_used_model": entry.underlying_model,
        "routing": attempts.attempt_log,
        **explanation,
        **({"warnings": msgspec.to_builtins(attempts.dropped_fields)} if attempts.dropped_fields else {}),
        **({"healed": True} if attempts.json_repaired else {}),
        **({"estimated_cost": True} if entry.estimated_cost else {}),
        **kept,
        **({"guardrails": guard.client_report} if guard is not None and guard.client_report else {}),
    }


def cost_breakdown(cost: Cost) -> dict[str, Decimal]:
    """Return a cost in USD: the total, and its parts, which add up to it."""
    parts = {
        "total": cost.total,
        "input": cost.input,
        "output": cost.output,
        "cached_input": cost.cached_input,
        "request": cost.request,
    }
    if cost.total != cost.input + cost.output + cost.cached_input + cost.request:
        more = {name: getattr(cost, name) for name in _RARE_PARTS}
        parts |= {name: amount for name, amount in more.items() if amount}
    return parts
