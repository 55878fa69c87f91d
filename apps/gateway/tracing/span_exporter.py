"""Span exporter: traces that have ended are encoded many at a time, wait in a bounded queue and are sent in batches.

A trace by itself, between the steps of requests, takes twice as long as one of a hundred (docs/adr/0220). A thread
sends, which is a greenlet in a web worker. While the collector is away traces are dropped and counted: telemetry never
holds up a request, fails one, or takes more than its room.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress

import requests
import structlog

from apps.gateway.metrics.buffer import add
from apps.gateway.metrics.definitions import TRACES_DROPPED, TRACES_EXPORTED
from apps.gateway.tracing.genai_attributes import describe
from apps.gateway.tracing.otlp import deliver
from apps.gateway.tracing.otlp_spans import encode_trace, export_request
from apps.gateway.tracing.request_trace import RequestTrace

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
