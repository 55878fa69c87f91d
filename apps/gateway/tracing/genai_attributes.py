"""GenAI attributes: a request's record in the names of OpenTelemetry's semantic conventions for generative AI. Pure.

The names are those of the conventions' version 1.41 (`gen_ai.provider.name`, no longer `gen_ai.system`); what they have
no name for is `gateway.*`. Must never see content: `content.py` does.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit
from uuid import UUID

from apps.gateway.tracing.request_trace import AttributeValue, Callee, RequestTrace
from apps.logs.entry import Entry

# By the kind of request; names of our own where the conventions have none.
OPERATIONS = {
    "chat": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "images": "image_generation",
    "moderations": "moderation",
    "rerank": "rerank",
    "speech": "speech",
    "transcription": "transcription",
}
# By the beginning of a route's name; all others are chats.
_OF_ROUTES = {
    "completions": "text_completion",
    "embed": "embeddings",
    "images": "image_generation",
    "moderations": "moderation",
    "rerank": "rerank",
    "audio_speech": "speech",
    "audio": "transcription",
}
# Providers whose well-known value is another word than their id here.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
_FINISH_REASONS = {"completed": "stop", "length_limit": "length"}
_NOTHING_KEPT = "none"
_PORTS = {"http": 80, "https": 443}


def operation_of(task: str) -> str:
    """Return `gen_ai.operation.name` of a kind of request."""
    return OPERATIONS.get(task, task)


@lru_cache(maxsize=128)
def operation_of_route(route: str) -> str:
    """Return `gen_ai.operation.name` of a record, by the name of its route."""
    return next((name for start, name in _OF_ROUTES.items() if route.startswith(start)), "chat")


def finish_reason_of(entry: Entry) -> str:
    """Return why the model stopped: in its own words where retention keeps them, else in the conventions'."""
    unified = entry.unified_finish_reason or "unknown"
    return entry.finish_reason or _FINISH_REASONS.get(unified, unified)


def provider_name(provider_id: str) -> str:
    """Return `gen_ai.provider.name` of a provider; a tenant's own keeps no name of its own, which may be anything."""
    return "custom" if provider_id.startswith("custom:") else _PROVIDERS.get(provider_id, provider_id)


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
        "gen_ai.response.finish_reasons": (finish_reason_of(entry),),
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
