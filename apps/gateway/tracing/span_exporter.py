"""Span exporter: traces that have ended are encoded many at a time, wait in a bounded queue and are sent in batches.

A trace by itself, between the steps of requests, takes twice as long as one of a hundred (docs/adr/0188). A thread
sends, which is a greenlet in a web worker. While the collector is away traces are dropped and counted: telemetry never
holds up a request, fails one, or takes more than its room. Numbers in the encoding are OTLP's field numbers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from functools import lru_cache
from struct import Struct

import requests
import structlog

from apps.gateway.metrics import TRACES_DROPPED, TRACES_EXPORTED, add
from apps.gateway.tracing import otlp, wire
from apps.gateway.tracing.genai_attributes import describe
from apps.gateway.tracing.otlp import deliver
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
    return otlp.constant(("error.type", span.error)) + _FAILED


@lru_cache(maxsize=1024)
def _name(name: str, kind: SpanKind) -> bytes:
    return wire.text(5, name) + wire.integer(6, kind)


log = structlog.get_logger(__name__)

# Traces that are encoded at once: a millisecond's work.
TOGETHER = 128
# Bytes of traces that wait at most (some six thousand traces), and of one message but for its last trace; seconds from
# one message to the next.
MAX_WAITING, _BATCH, _EVERY = 8 << 20, 1 << 20, 2.0


class SpanExporter:
    """The queue of one process, and the thread that empties it; the thread begins with the first trace."""

    def __init__(self, path: str = "/v1/traces", every: float = _EVERY) -> None:
        self._path, self._every = path, every
        self._ended: deque[RequestTrace] = deque()
        # Encoded.
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._process = 0
        self._session = requests.Session()
        # Proxies and .netrc of the environment do not apply.
        self._session.trust_env = False

    def add(self, trace: RequestTrace) -> None:
        """Take a trace that has ended; it is dropped where too many wait."""
        self._ended.append(trace)
        # Content is as large as it is, and encoded already.
        if len(self._ended) >= TOGETHER or trace.content:
            self._encode()
        if self._process != os.getpid():
            # The first of this process: threads do not pass a fork.
            self._process = os.getpid()
            threading.Thread(target=self._run, name="span-exporter", daemon=True).start()

    def _encode(self) -> None:
        """Encode what has ended, as far as there is room for it. Raises nothing."""
        # Where threads are none of gevent's, another may take the last.
        with suppress(IndexError):
            while True:
                trace = self._ended.popleft()
                if self._size >= MAX_WAITING:
                    add(TRACES_DROPPED)
                    continue
                try:
                    describe(trace)
                    encoded = encode_trace(trace)
                except Exception:
                    log.exception("telemetry.not_traced", trace_id=trace.trace_id.hex())
                    add(TRACES_DROPPED)
                    continue
                self._waiting.append(encoded)
                self._size += len(encoded)

    def flush(self) -> None:
        """Send all that wait, in batches."""
        self._encode()
        while self._waiting:
            batch = self._take()
            taken = deliver(self._session, self._path, export_request(batch))
            add(TRACES_EXPORTED if taken else TRACES_DROPPED, len(batch))

    def _take(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._waiting and size < _BATCH:
            batch.append(self._waiting.popleft())
            size += len(batch[-1])
        self._size -= size
        return batch

    def _run(self) -> None:
        while True:
            time.sleep(self._every)
            try:
                self.flush()
            except Exception:
                log.exception("telemetry.failed")
