"""OTLP spans: traces that have ended, as the message that a collector takes. Knows OTLP's numbers of fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from apps.gateway.tracing import otlp, wire
from apps.gateway.tracing.request_trace import RequestTrace, SpanKind, TraceSpan

_NANOSECONDS = 1_000_000_000
# Traces that are encoded without a pause, within half a millisecond or so.
_AT_ONCE = 16
_ATTRIBUTES = 9
# A `Status` of the code for errors.
_FAILED = wire.data(15, wire.integer(3, 2))


def export_request(traces: Iterable[RequestTrace], between: Callable[[], Any] = lambda: None) -> bytes:
    """Return the message of these traces; `between` is called now and then, for others to get on."""
    spans: list[bytes] = []
    for number, trace in enumerate(traces, start=1):
        trace_id = wire.data(1, trace.trace_id) + (wire.text(3, trace.state) if trace.state else b"")
        spans += [_span(trace_id, trace.anchor, one) for one in trace.spans]
        if number % _AT_ONCE == 0:
            between()
    return otlp.export_request(spans)


def _span(trace_id: bytes, anchor: int, span: TraceSpan) -> bytes:
    end = span.start if span.end is None else span.end
    parts = [
        trace_id,
        wire.data(2, span.span_id),
        wire.data(4, span.parent_id),
        _name(span.name, span.kind),
        wire.fixed(7, anchor + int(span.start * _NANOSECONDS)),
        wire.fixed(8, anchor + int(end * _NANOSECONDS)),
    ]
    if span.stable:
        parts.append(otlp.stable_attributes(_ATTRIBUTES, *span.stable))
    if span.attributes:
        parts.append(otlp.attributes(_ATTRIBUTES, span.attributes.items()))
    if span.error:
        parts += [otlp.stable_attributes(_ATTRIBUTES, ("error.type", span.error)), _FAILED]
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _name(name: str, kind: SpanKind) -> bytes:
    return wire.text(5, name) + wire.integer(6, kind)
