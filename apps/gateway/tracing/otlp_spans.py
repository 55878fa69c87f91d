"""OTLP spans: a trace that has ended as bytes, and many of them as the message that a collector takes.

The numbers are OTLP's field numbers.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from apps.gateway.tracing import otlp, span_attributes, wire
from apps.gateway.tracing.request_trace import RequestTrace, SpanKind, TraceSpan

_NANOSECONDS = 1_000_000_000
# `ScopeSpans.spans`.
_SPANS = 2
# A `Status` of the code for errors.
_FAILED = wire.data(15, wire.integer(3, 2))
# Fields of every span, each of a fixed size: ids of trace and span, the parent's where there is one, start and end.
_TRACE_ID, _SPAN_ID, _PARENT_ID = wire.head(1, 16), wire.head(2, 8), wire.head(4, 8)
_START, _END = b"\x39", b"\x41"
# The request's span, the same within a client's, and one within another of the request's.
_ROOT, _JOINED, _CHILD = Struct("<27sB1sQ1sQ").pack, Struct("<27sB2s8s1sQ1sQ").pack, Struct("<27sB2s7sB1sQ1sQ").pack


def encode_trace(trace: RequestTrace) -> bytes:
    """Return the spans of a trace that has ended, as fields of the message that carries them."""
    span_ids = trace.span_ids
    ids = _TRACE_ID + trace.trace_id + _SPAN_ID + span_ids
    state = wire.text(3, trace.state) if trace.state else b""
    anchor = trace.anchor
    last = trace.root.start if trace.root.end is None else trace.root.end
    parts: list[bytes] = []
    for span in trace.all_spans():
        start = anchor + int(span.start * _NANOSECONDS)
        end = anchor + int((last if span.end is None else span.end) * _NANOSECONDS)
        if span.number:
            fixed = _CHILD(ids, span.number, _PARENT_ID, span_ids, span.parent, _START, start, _END, end)
        elif trace.parent_id:
            fixed = _JOINED(ids, 0, _PARENT_ID, trace.parent_id, _START, start, _END, end)
        else:
            fixed = _ROOT(ids, 0, _START, start, _END, end)
        body = fixed + _name(span.name, span.kind) + span.attributes + state
        if span.error:
            body += _error(span)
        parts += (wire.head(_SPANS, len(body)), body)
    return b"".join(parts)


def export_request(traces: list[bytes]) -> bytes:
    """Return the message of these traces, as `encode_trace` returned them."""
    return otlp.message(traces)


def _error(span: TraceSpan) -> bytes:
    return span_attributes.constant(("error.type", span.error)) + _FAILED


@lru_cache(maxsize=1024)
def _name(name: str, kind: SpanKind) -> bytes:
    return wire.text(5, name) + wire.integer(6, kind)
