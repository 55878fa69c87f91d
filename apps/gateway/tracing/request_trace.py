"""Request trace: the spans of one request, from its first byte to its record; trace context of W3C read and written.

Where a request is not traced there is no such object, and nothing is done. While it runs only names and times are
noted; the rest is in the request's record, and is added when the trace is encoded. A client's `traceparent` is hostile
input: an invalid one counts as none.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from apps.gateway.failures import UpstreamFailure
from apps.logs.entry import Entry

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
# An id is no secret; looked up once.
_random_bits = random.getrandbits
# Characters of a `tracestate` that are passed on.
_MAX_STATE_LENGTH = 512


class TraceContext(NamedTuple):
    """The trace that a client's request belongs to: ids of 16 and 8 bytes, whether it is recorded there, its state."""

    trace_id: bytes
    span_id: bytes
    sampled: bool
    state: str = ""


def read_traceparent(header: str | None, state: str | None = None) -> TraceContext | None:
    """Return what a client's `traceparent` (and `tracestate`) say; None for none, or one that is not well formed."""
    found = _FORM.fullmatch(header.strip()) if header else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    kept = state if state and len(state) <= _MAX_STATE_LENGTH and state.isascii() and state.isprintable() else ""
    return TraceContext(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & _SAMPLED), kept)


def write_traceparent(trace_id: bytes, span_id: bytes) -> str:
    """Return the header for a call made within a span that is recorded."""
    return f"00-{trace_id.hex()}-{span_id.hex()}-01"


def new_trace_id() -> bytes:
    """Return the id of a new trace; never zero."""
    return (_random_bits(127) + 1).to_bytes(16, "big")


def new_span_ids() -> bytes:
    """Return what the ids of a request's spans begin with, all but their last byte; never zero."""
    return (_random_bits(55) + 1).to_bytes(7, "big")


def is_sampled(parent: TraceContext | None, share: float) -> bool:
    """Return whether a request is recorded: as its parent is, else by chance, `share` of them."""
    if parent is not None:
        return parent.sampled
    return share >= 1 or random.random() < share  # noqa: S311 - a sample, not a secret


AttributeValue = str | bool | int | float | tuple[str, ...]
Item = TypeVar("Item")

# Spans of one request; a request for many answers makes as many calls, each of which is one.
MAX_SPANS = 128
# Numbers of the spans that a request has once; those of attempts and calls follow.
_ADMISSION, _SETTLE, _FIRST = 1, 2, 3


class SpanKind(IntEnum):
    """The kinds of spans that there are here, by their numbers in OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class TraceSpan(msgspec.Struct, eq=False, gc=False):
    """One step of a request; times are monotonic seconds, `end` is None while it lasts, `error` a class of errors.

    Its number, which is 0 for the request's own, is the last byte of its id.
    """

    name: str
    kind: SpanKind
    number: int
    parent: int
    start: float
    end: float | None = None
    error: str = ""
    # As `otlp.py` encodes them.
    attributes: bytes = b""

    def finish(self, error: str = "", at: float | None = None) -> None:
        """End it, now or at a time, in an error where one is named; a second call does nothing."""
        if self.end is None:
            self.end = time.monotonic() if at is None else at
            self.error = error


class Callee(msgspec.Struct, frozen=True):
    """Whom an attempt asks: the provider's id, the model's name there, and the base URL."""

    provider_id: str
    model_name: str
    base_url: str


class ProviderAnswer(msgspec.Struct, frozen=True):
    """A provider's description of its answer: its id, its model, and the fingerprint of the serving system."""

    id: str
    model: str
    fingerprint: str


class TracedCall(Protocol):
    """A traced call of a provider: gives the headers to send, and takes the status of the answer."""

    trace_headers: Mapping[str, str]

    @property
    def status(self) -> int | None:
        """The HTTP status of the provider's answer."""


class ProviderSpan(TraceSpan, eq=False, gc=False, kw_only=True):
    """One call of a provider: whom it asks, and the HTTP status that was answered."""

    callee: Callee
    status: int | None = None


class RequestTrace(msgspec.Struct, eq=False):
    """A traced request. `anchor` is wall-clock nanoseconds less monotonic ones; `ended` is called with it at its
    end."""

    trace_id: bytes
    # The beginning of its spans' ids; and the id of the client's span, where it sent one.
    span_ids: bytes
    parent_id: bytes
    state: str
    root: TraceSpan
    anchor: int
    ended: Callable[[RequestTrace], object]
    # Attempts and calls of providers, in their order: the last call is that of the answer, where one answered.
    spans: list[TraceSpan] = []
    count: int = _FIRST
    # When it had been admitted, and when it began to be settled; the settlement ends with the request.
    admitted_at: float | None = None
    settling_at: float | None = None
    is_over: bool = False
    # The record that describes it, without content, and the request's kind; None of a request that was refused.
    entry: Entry | None = None
    task: str = ""
    # The attributes that hold content, encoded; only where they are wanted.
    content: bytes = b""
    # The client's own name of the conversation, where it has one.
    conversation_id: str = ""
    # The provider's description of its answer; with several calls for one request, that of the first to answer.
    answer: ProviderAnswer | None = None
    # The encoded attributes of the request; and those of the requested and used tiers of service.
    asked: bytes = b""
    asked_tier: str = ""
    used_tier: str = ""

    @classmethod
    def begin(
        cls, name: str, started_at: float, parent: TraceContext | None, ended: Callable[[RequestTrace], object]
    ) -> RequestTrace:
        """Return the trace of a request that came at `started_at` on the monotonic clock, within a client's span."""
        root = TraceSpan(name, SpanKind.SERVER, 0, 0, started_at)
        trace_id, parent_id, state = (parent.trace_id, parent.span_id, parent.state) if parent else (b"", b"", "")
        anchor = time.time_ns() - time.monotonic_ns()
        return cls(trace_id or new_trace_id(), new_span_ids(), parent_id, state, root, anchor, ended)

    @property
    def calls(self) -> list[ProviderSpan]:
        """The calls of providers."""
        return [span for span in self.spans if isinstance(span, ProviderSpan)]

    def all_spans(self) -> list[TraceSpan]:
        """Return the spans of a request that has ended, its own first."""
        found = [self.root, *self.spans]
        if self.admitted_at is not None:
            found.append(self._step("admission", _ADMISSION, self.root.start, self.admitted_at))
        if self.settling_at is not None:
            found.append(self._step("settle", _SETTLE, self.settling_at, self.root.end))
        return found

    def _step(self, name: str, number: int, start: float, end: float | None) -> TraceSpan:
        return TraceSpan(name, SpanKind.INTERNAL, number, self.root.number, start, end)

    def headers_within(self, span: TraceSpan) -> dict[str, str]:
        """Return the headers that tell a provider within which span it is called."""
        headers = {"traceparent": write_traceparent(self.trace_id, self.span_ids + span.number.to_bytes())}
        return {**headers, "tracestate": self.state} if self.state else headers

    def begin_attempt(self, callee: Callee) -> AttemptSpan:
        """Return the span of an attempt that begins now."""
        span = TraceSpan("attempt", SpanKind.INTERNAL, self._next_number(), 0, time.monotonic())
        self._add(span)
        return AttemptSpan(self, span, callee)

    def begin_call(self, attempt: TraceSpan, callee: Callee) -> ProviderSpan:
        """Return the span of a provider's call within an attempt, which begins now."""
        span = ProviderSpan(
            "provider", SpanKind.CLIENT, self._next_number(), attempt.number, time.monotonic(), callee=callee
        )
        self._add(span)
        return span

    def _next_number(self) -> int:
        """Return the number of a new span; all that are not recorded have one number."""
        number = self.count
        if number < MAX_SPANS:
            self.count = number + 1
        return number

    def _add(self, span: TraceSpan) -> None:
        if span.number < MAX_SPANS:
            self.spans.append(span)

    def end_attempts(self, at: float) -> None:
        """End the attempts that last: that of the answer, and of the loser of a race. From here on it is settled."""
        self.settling_at = at
        for span in self.spans:
            if span.end is None:
                span.end = at

    def finish(self, error: str = "") -> None:
        """End the request, and with it every step that lasts; hand the trace over. A second call does nothing."""
        if self.is_over:
            return
        self.is_over = True
        self.root.finish(error)
        self.ended(self)


class AttemptSpan(msgspec.Struct, eq=False):
    """One attempt: whom it asks, and the calls of the provider that it makes."""

    trace: RequestTrace
    span: TraceSpan
    callee: Callee

    def traced(self, call: TracedCall, events: Iterator[Item]) -> Generator[Item, None, None]:
        """Yield the events of a call of the provider, which begins now and ends with them. Raises what they raise."""
        own = self.trace.begin_call(self.span, self.callee)
        call.trace_headers = self.trace.headers_within(own)
        error = ""
        try:
            yield from events
        except UpstreamFailure as failure:
            error = failure.error_type
            raise
        except GeneratorExit:
            # The client left, or another call was quicker; this is no failure.
            raise
        except Exception as failure:
            error = type(failure).__name__
            raise
        finally:
            own.status = call.status
            own.finish(error)
