"""Tracer: begins the trace of a request where tracing is on and the request is sampled, and ends it with its record.

While it is off, the default, a request costs one look at a setting. A failure of tracing never fails a request.
Request and answer are added, as the conventions' messages, only where the deployment wants content and the record keeps
it; files are named, never included.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, Part, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.tracing.genai_attributes import asked_attributes
from apps.gateway.tracing.otlp import constant
from apps.gateway.tracing.request_trace import AttributeValue, RequestTrace, is_sampled, read_traceparent
from apps.gateway.tracing.span_exporter import SpanExporter
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.errors import ApiError
from apps.kernel.rest.routes import Route
from apps.logs.entry import Entry
from apps.logs.genai_names import finish_reason_of

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
