"""Tracer: begins the trace of a request where tracing is on and the request is sampled, and ends it with its record.

While it is off, the default, a request costs one look at a setting. A failure of tracing never fails a request.
Request and answer are added, as the conventions' messages, only where the deployment wants content and the record keeps
it; files are named, never included.

Traces that have ended are encoded many at a time, wait in a bounded queue and are sent in batches: a trace by itself,
between the steps of requests, takes twice as long as one of a hundred (docs/adr/0188). A thread sends, which is a
greenlet in a web worker. While the collector is away traces are dropped and counted: telemetry never holds up a
request, fails one, or takes more than its room. Numbers in the encoding are OTLP's field numbers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from functools import cache, lru_cache
from struct import Struct
from typing import Any

import msgspec
import requests
import structlog
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, Part, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.metrics import TRACES_DROPPED, TRACES_EXPORTED, add
from apps.gateway.tracing import otlp, wire
from apps.gateway.tracing.genai_attributes import asked_attributes, describe
from apps.gateway.tracing.otlp import constant, deliver
from apps.gateway.tracing.request_trace import (
    AttributeValue,
    RequestTrace,
    SpanKind,
    TraceSpan,
    is_sampled,
    read_traceparent,
)
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.errors import ApiError
from apps.kernel.rest.routes import Route
from apps.logs.entry import Entry
from apps.logs.genai_names import finish_reason_of

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


log = structlog.get_logger(__name__)

_TELEMETRY = CachedSetting("TELEMETRY")
_NOTHING_KEPT = "none"
_NO_CONTENT = dict.fromkeys(
    (
        *("messages", "content", "reasoning_content", "tools", "tool_choice", "tool_results", "response_format"),
        *("refusal", "tool_calls", "choices", "citations", "media", "media_data"),
    )
)


@cache
def exporter() -> SpanExporter:
    """Return this process's exporter."""
    return SpanExporter()


def is_tracing() -> bool:
    """Return whether requests are traced at all."""
    return bool(_TELEMETRY.value.traces)


def begin_trace(
    route: Route, started_at: float, traceparent: str | None, tracestate: str | None
) -> RequestTrace | None:
    """Return the trace of a request that came at `started_at`; None where it is not sampled."""
    parent = read_traceparent(traceparent, tracestate)
    if not is_sampled(parent, _TELEMETRY.value.sample):
        return None
    name, attributes = _of_route(route.method or "POST", route.path)
    trace = RequestTrace.begin(name, started_at, parent, exporter().add)
    trace.root.attributes = attributes
    return trace


@lru_cache(maxsize=256)
def _of_route(method: str, path: str) -> tuple[str, bytes]:
    """Return the name and the attributes of the span of a request."""
    return f"{method} /{path}", constant(("http.request.method", method), ("http.route", f"/{path}"))


def refuse(trace: RequestTrace, error: ApiError) -> None:
    """End the trace of a request that was refused before it had a record; one that has ended stays as it is."""
    if not trace.is_over:
        trace.root.attributes += constant(("http.response.status_code", error.status))
        trace.finish(_error_of(error.status, error.code or error.type))


def end_trace(trace: RequestTrace, entry: Entry, chat: Chat, settling_at: float, used_tier: str = "") -> None:
    """End the trace of a request with its record, which was settled from `settling_at` until now. Raises nothing.

    `used_tier` is the tier of service that answered.
    """
    try:
        trace.end_attempts(settling_at)
        retained = entry.retention_level == RETAINED
        trace.asked = asked_attributes(
            chat, trace.conversation_id, parameters=entry.retention_level != _NOTHING_KEPT, content=retained
        )
        trace.asked_tier, trace.used_tier = chat.service_tier or "", used_tier
        if retained and _TELEMETRY.value.content:
            trace.content = constant(*content_attributes(entry, chat).items())
        # Content can be large, and the trace waits for others.
        trace.entry, trace.task = replace(entry, **_NO_CONTENT) if retained else entry, chat.task
        details = entry.error_details or {}
        trace.finish(_error_of(entry.status_code or 500, details.get("code") or details.get("type")))
    except Exception:
        log.exception("telemetry.not_traced", request_id=entry.request_id)


def _error_of(status: int, name: object) -> str:
    """Return a request's class of error; a client's own mistake, or leaving, is none of the server's."""
    return str(name or status) if status >= 500 else ""


# Characters of one attribute; a longer one is left out whole, as half of it could not be read.
MAX_CHARACTERS = 65_536
RETAINED = "retain"


def content_attributes(entry: Entry, chat: Chat) -> dict[str, AttributeValue]:
    """Return a request's messages, tools and answer, as JSON; nothing unless the organization retains content."""
    if entry.retention_level != RETAINED:
        return {}
    found: dict[str, AttributeValue] = {}
    _add(found, "gen_ai.input.messages", [_message(one) for one in chat.messages])
    if tools := [_definition(one) for one in chat.tools or () if isinstance(one, FunctionTool)]:
        _add(found, "gen_ai.tool.definitions", tools)
    parts = [] if entry.content is None else [{"type": "text", "content": entry.content}]
    parts += [
        {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        for call in entry.tool_calls or ()
        if "name" in call
    ]
    if parts:
        reason = finish_reason_of(entry.finish_reason, entry.unified_finish_reason)
        said = {"role": "assistant", "parts": parts, "finish_reason": reason}
        _add(found, "gen_ai.output.messages", [said])
    return found


def _add(found: dict[str, AttributeValue], name: str, values: list[dict[str, Any]]) -> None:
    text = msgspec.json.encode(values).decode()
    if len(text) <= MAX_CHARACTERS:
        found[name] = text


def _definition(tool: FunctionTool) -> dict[str, Any]:
    told = {"description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "name": tool.name, **{name: value for name, value in told.items() if value is not None}}


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part(one) for one in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "content": part.text}
    if isinstance(part, Reasoning):
        return {"type": "reasoning", "content": part.text}
    if isinstance(part, ToolCall):
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    if isinstance(part, ToolResult):
        result = "".join(one.text for one in part.parts if isinstance(one, Text))
        return {"type": "tool_call_response", "id": part.call_id, "result": result}
    return {"type": type(part).__name__.lower()}
