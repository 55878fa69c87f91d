"""Request trace: the spans of one request, from its first byte to its record: admission, attempts, providers, settle.

Where a request is not traced there is no such object, and nothing is done. Knows spans and times. Must never know a
wire format, nor what is done with a trace that has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Protocol, TypeVar

import msgspec

from apps.gateway.failures import UpstreamFailure
from apps.gateway.tracing.trace_context import TraceContext, new_span_id, new_trace_id, write_traceparent

AttributeValue = str | bool | int | float | tuple[str, ...]
Item = TypeVar("Item")

# Spans of one request; a request for many answers makes as many calls, each of which is one.
MOST_SPANS = 128


class SpanKind(IntEnum):
    """The kinds of spans that there are here, by their numbers in OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class TraceSpan(msgspec.Struct, eq=False, gc=False):
    """One step of a request; times are monotonic seconds, `end` is None while it lasts, `error` a class of errors."""

    name: str
    kind: SpanKind
    span_id: bytes
    parent_id: bytes
    start: float
    end: float | None = None
    error: str = ""
    # As `span_attributes.py` encodes them.
    attributes: bytes = b""

    def finish(self, error: str = "", at: float | None = None) -> None:
        """End it, now or at a time, in an error where one is named; once more does nothing."""
        if self.end is None:
            self.end = time.monotonic() if at is None else at
            self.error = error


class Callee(msgspec.Struct, frozen=True):
    """Whom an attempt asks: the provider's id, the model's name there, and the base URL."""

    provider_id: str
    model_name: str
    base_url: str


class TracedCall(Protocol):
    """What a traced call of a provider is told, and tells: the headers to send, and the status of the answer."""

    trace_headers: Mapping[str, str]

    @property
    def status(self) -> int | None:
        """The HTTP status of the provider's answer."""


class RequestTrace(msgspec.Struct, eq=False):
    """A traced request. `anchor` is wall-clock nanoseconds less monotonic ones; `ended` is told of it at its end."""

    trace_id: bytes
    root: TraceSpan
    anchor: int
    ended: Callable[[RequestTrace], object]
    state: str = ""
    spans: list[TraceSpan] = []
    # In their order: the last is that of the answer, where a provider answered.
    calls: list[ProviderSpan] = []
    is_over: bool = False

    @classmethod
    def begin(
        cls, name: str, started_at: float, parent: TraceContext | None, ended: Callable[[RequestTrace], object]
    ) -> RequestTrace:
        """Return the trace of a request that came at `started_at` on the monotonic clock, within a client's span."""
        root = TraceSpan(name, SpanKind.SERVER, new_span_id(), parent.span_id if parent else b"", started_at)
        return cls(
            trace_id=parent.trace_id if parent else new_trace_id(),
            root=root,
            anchor=time.time_ns() - time.monotonic_ns(),
            ended=ended,
            state=parent.state if parent else "",
            spans=[root],
        )

    @property
    def answering_call(self) -> ProviderSpan | None:
        """The call of the provider whose answer the client got; None where nobody, or the cache, answered."""
        return next((one for one in reversed(self.calls) if not one.span.error and one.status is not None), None)

    def add(
        self, name: str, start: float, parent: TraceSpan | None = None, kind: SpanKind = SpanKind.INTERNAL
    ) -> TraceSpan:
        """Return a new span within another, or within the request."""
        span = TraceSpan(name, kind, new_span_id(), (parent or self.root).span_id, start)
        if len(self.spans) < MOST_SPANS:
            self.spans.append(span)
        return span

    def headers_within(self, span: TraceSpan) -> dict[str, str]:
        """Return the headers that tell a provider within which span it is called."""
        headers = {"traceparent": write_traceparent(self.trace_id, span.span_id)}
        return {**headers, "tracestate": self.state} if self.state else headers

    def add_finished(self, name: str, start: float) -> None:
        """Add a step that began at `start` and ends now."""
        self.add(name, start).finish()

    def begin_attempt(self, callee: Callee) -> AttemptSpan:
        """Return the span of an attempt that begins now."""
        return AttemptSpan(self, self.add("attempt", time.monotonic()), callee)

    def end_attempts(self, at: float) -> None:
        """End the attempts that last: that of the answer, and of the loser of a race."""
        for span in self.spans:
            if span.end is None and span is not self.root:
                span.end = at

    def finish(self, error: str = "") -> None:
        """End the request, and with it every step that lasts; hand the trace over. Once more does nothing."""
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

    def traced(self, call: TracedCall, events: Iterator[Item]) -> Iterator[Item]:
        """Yield the events of a call of the provider, which begins now and ends with them. Raises what they raise."""
        own = ProviderSpan(self.trace.add("provider", time.monotonic(), self.span, SpanKind.CLIENT), self.callee)
        self.trace.calls.append(own)
        call.trace_headers = self.trace.headers_within(own.span)
        error = ""
        try:
            yield from events
        except UpstreamFailure as failure:
            error = failure.error_type
            raise
        except GeneratorExit:
            # The client left, or another call was quicker; what was produced was produced.
            raise
        except Exception as failure:
            error = type(failure).__name__
            raise
        finally:
            own.status = call.status
            own.span.finish(error)


class ProviderSpan(msgspec.Struct, eq=False):
    """One call of a provider, with the HTTP status that it answered."""

    span: TraceSpan
    callee: Callee
    status: int | None = None
