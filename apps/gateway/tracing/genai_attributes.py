"""GenAI attributes: a request's record in the names of OpenTelemetry's semantic conventions for generative AI. Pure.

Words of operations and providers are those of `apps/logs/genai_names.py`; what the conventions have no name for is
`gateway.*`. Must never see content: `content.py` does.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit
from uuid import UUID

from apps.gateway.tracing.request_trace import AttributeValue, Callee, RequestTrace
from apps.logs.entry import Entry
from apps.logs.genai_names import finish_reason_of, operation_of, provider_name

_NOTHING_KEPT = "none"
_PORTS = {"http": 80, "https": 443}


def describe(trace: RequestTrace, entry: Entry, task: str) -> None:
    """Give the spans of a recorded request their attributes, and those of providers their conventional names."""
    operation = operation_of(task)
    trace.root.stable += _of_request(entry)
    trace.root.attributes = {"gateway.request_id": entry.request_id, "gateway.log_id": str(entry.id)}
    if entry.cost is not None:
        trace.root.attributes["gateway.cost_usd"] = float(entry.cost)
    for one in trace.calls:
        one.span.name = f"{operation} {one.callee.model_name}"
        one.span.stable = _of_call(one.callee, one.status, operation)
    answering = trace.answering_call
    if answering is not None:
        # Counted there alone: who sums up spans would count tokens twice.
        answering.span.attributes = _of_answer(entry)


def _of_request(entry: Entry) -> tuple[tuple[str, AttributeValue], ...]:
    found: tuple[tuple[str, AttributeValue], ...] = (
        ("http.response.status_code", entry.status_code or 0),
        *_of_caller(entry.organization_id, entry.project_id, entry.api_key_id),
        ("gateway.requested_model", entry.requested_model),
        ("gateway.used_model", entry.used_model),
        ("gateway.streamed", bool(entry.streamed)),
    )
    return (*found, ("gateway.cached", True)) if entry.cached else found


@lru_cache(maxsize=1024)
def _of_caller(organization_id: UUID, project_id: UUID, api_key_id: UUID) -> tuple[tuple[str, str], ...]:
    return (
        ("gateway.organization_id", str(organization_id)),
        ("gateway.project_id", str(project_id)),
        ("gateway.api_key_id", str(api_key_id)),
    )


@lru_cache(maxsize=1024)
def _of_call(callee: Callee, status: int | None, operation: str) -> tuple[tuple[str, AttributeValue], ...]:
    address, port = _server_of(callee.base_url)
    return (
        ("gen_ai.operation.name", operation),
        ("gen_ai.provider.name", provider_name(callee.provider_id)),
        ("gen_ai.request.model", callee.model_name),
        *((("server.address", address), ("server.port", port)) if address else ()),
        *((("http.response.status_code", status),) if status is not None else ()),
    )


def _of_answer(entry: Entry) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {
        "gen_ai.response.id": str(entry.id),
        "gen_ai.response.model": entry.underlying_model,
        "gen_ai.response.finish_reasons": (finish_reason_of(entry.finish_reason, entry.unified_finish_reason),),
    }
    for name, value in (
        ("gen_ai.usage.input_tokens", entry.prompt_tokens),
        ("gen_ai.usage.output_tokens", entry.completion_tokens),
        ("gen_ai.usage.cache_read.input_tokens", entry.cached_tokens or None),
        ("gen_ai.usage.cache_creation.input_tokens", entry.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", entry.reasoning_tokens),
    ):
        if value is not None:
            found[name] = value  # noqa: PERF403 - most are there, and a dictionary of all of them is dearer
    if entry.retention_level != _NOTHING_KEPT:
        found |= _parameters_of(entry)
    return found


def _parameters_of(entry: Entry) -> dict[str, AttributeValue]:
    """Return what retention keeps of the request's parameters."""
    found = {
        "gen_ai.request.temperature": entry.temperature,
        "gen_ai.request.top_p": entry.top_p,
        "gen_ai.request.max_tokens": entry.max_tokens,
        "gen_ai.request.frequency_penalty": entry.frequency_penalty,
        "gen_ai.request.presence_penalty": entry.presence_penalty,
    }
    return {name: value for name, value in found.items() if value is not None}


@lru_cache(maxsize=1024)
def _server_of(base_url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(base_url)
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)
    except ValueError:
        return "", 0
