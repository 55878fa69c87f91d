"""GenAI attributes: a request's record in the names of OpenTelemetry's semantic conventions for generative AI. Pure.

Words of operations and providers are those of `apps/logs/genai_names.py`; what the conventions have no name for is
`gateway.*`. Attributes of the request beside the record's columns, and of the provider's answer, are here too.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit
from uuid import UUID

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Started
from apps.gateway.tracing.otlp import constant, double, integer, text
from apps.gateway.tracing.request_trace import AttributeValue, Callee, ProviderAnswer, RequestTrace
from apps.logs.entry import Entry
from apps.logs.genai_names import OUTPUT_TYPES, finish_reason_of, operation_of, provider_name

_NOTHING_KEPT = "none"
_PARAMETERS = (
    "gen_ai.request.temperature",
    "gen_ai.request.top_p",
    "gen_ai.request.max_tokens",
    "gen_ai.request.frequency_penalty",
    "gen_ai.request.presence_penalty",
)
_STREAMED = constant(("gen_ai.request.stream", True))
# Whose attributes `openai.*` are.
_OPENAI = frozenset({"openai", "azure.ai.openai"})
_PORTS = {"http": 80, "https": 443}


def describe(trace: RequestTrace) -> None:
    """Give the spans of a request their attributes by its record, and those of providers their conventional names."""
    entry = trace.entry
    if entry is None:
        return
    log_id = str(entry.id)
    trace.root.attributes += _of_request(entry, log_id)
    answering = None
    for one in trace.calls:
        one.name, one.attributes = _of_call(one.callee, one.status, trace.task)
        if one.status is not None and not one.error:
            answering = one
    # The call whose answer the client got; there is none where no provider, or the cache, answered.
    if answering is not None:
        # Counted there alone: who sums up spans would count tokens twice.
        answering.attributes += _of_answer(entry, trace.answer) + trace.asked + trace.content
        if entry.streamed:
            answering.attributes += _STREAMED
        if provider_name(answering.callee.provider_id) in _OPENAI:
            answering.attributes += _of_openai(
                trace.asked_tier, trace.used_tier, trace.answer.fingerprint if trace.answer is not None else ""
            )
        if entry.streamed and entry.time_to_first_token is not None:
            # The record counts from the client's request, the conventions from the provider's.
            waited = entry.time_to_first_token / 1000 - (answering.start - trace.root.start)
            answering.attributes += double("gen_ai.response.time_to_first_chunk", max(waited, 0.0))


def _of_request(entry: Entry, log_id: str) -> bytes:
    found = (
        _of_caller(entry.organization_id, entry.project_id, entry.api_key_id)
        + _of_model(
            entry.status_code or 0, entry.requested_model, entry.used_model, bool(entry.streamed), bool(entry.cached)
        )
        + text("gateway.request_id", entry.request_id)
        + text("gateway.log_id", log_id)
    )
    return found if entry.cost is None else found + double("gateway.cost_usd", float(entry.cost))


@lru_cache(maxsize=1024)
def _of_caller(organization_id: UUID, project_id: UUID, api_key_id: UUID) -> bytes:
    return constant(
        ("gateway.organization_id", str(organization_id)),
        ("gateway.project_id", str(project_id)),
        ("gateway.api_key_id", str(api_key_id)),
    )


@lru_cache(maxsize=1024)
def _of_model(status: int, requested: str, used: str, streamed: bool, cached: bool) -> bytes:
    return constant(
        ("http.response.status_code", status),
        ("gateway.requested_model", requested),
        ("gateway.used_model", used),
        ("gateway.streamed", streamed),
        *((("gateway.cached", True),) if cached else ()),
    )


@lru_cache(maxsize=1024)
def _of_call(callee: Callee, status: int | None, task: str) -> tuple[str, bytes]:
    """Return the name and the attributes of the span of a provider's call."""
    address, port = _server_of(callee.base_url)
    operation = operation_of(task)
    return f"{operation} {callee.model_name}", constant(
        ("gen_ai.operation.name", operation),
        ("gen_ai.provider.name", provider_name(callee.provider_id)),
        ("gen_ai.request.model", callee.model_name),
        *((("server.address", address), ("server.port", port)) if address else ()),
        *((("http.response.status_code", status),) if status is not None else ()),
    )


def _of_answer(entry: Entry, answer: ProviderAnswer | None) -> bytes:
    model = answer.model if answer is not None else ""
    found = _of_end(model or entry.underlying_model, entry.finish_reason, entry.unified_finish_reason)
    if answer is not None and answer.id:
        found += text("gen_ai.response.id", answer.id)
    if entry.prompt_tokens is not None:
        found += integer("gen_ai.usage.input_tokens", entry.prompt_tokens)
    if entry.completion_tokens is not None:
        found += integer("gen_ai.usage.output_tokens", entry.completion_tokens)
    if entry.cached_tokens:
        found += integer("gen_ai.usage.cache_read.input_tokens", entry.cached_tokens)
    if entry.cache_write_tokens is not None:
        found += integer("gen_ai.usage.cache_creation.input_tokens", entry.cache_write_tokens)
    if entry.reasoning_tokens is not None:
        found += integer("gen_ai.usage.reasoning.output_tokens", entry.reasoning_tokens)
    if entry.retention_level != _NOTHING_KEPT:
        found += _of_parameters(
            entry.temperature, entry.top_p, entry.max_tokens, entry.frequency_penalty, entry.presence_penalty
        )
        if entry.reasoning_effort:
            found += text("gen_ai.request.reasoning.level", entry.reasoning_effort)
    return found


@lru_cache(maxsize=256)
def _of_openai(asked_tier: str, used_tier: str, fingerprint: str) -> bytes:
    """Return the attributes that OpenAI's answers alone have."""
    told = {
        "openai.request.service_tier": asked_tier,
        "openai.response.service_tier": used_tier,
        "openai.response.system_fingerprint": fingerprint,
    }
    return constant(*((name, value) for name, value in told.items() if value))


@lru_cache(maxsize=1024)
def _of_end(model: str, finish_reason: str | None, unified: str | None) -> bytes:
    return constant(
        ("gen_ai.response.model", model),
        ("gen_ai.response.finish_reasons", (finish_reason_of(finish_reason, unified),)),
    )


@lru_cache(maxsize=1024, typed=True)
def _of_parameters(*values: float | None) -> bytes:
    """Return what retention keeps of the request's parameters, in the order of their names."""
    return constant(*((name, value) for name, value in zip(_PARAMETERS, values, strict=True) if value is not None))


@lru_cache(maxsize=1024)
def _server_of(base_url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(base_url)
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)
    except ValueError:
        return "", 0


# Values of `gen_ai.output.type` by what a client says the answer is to be.
_OF_FORMATS = {"text": "text", "json_object": "json", "json_schema": "json"}
_OF_MODALITIES = {"audio": "speech", "image": "image"}
# Characters of an id that is passed on; longer ones are none.
_MAX_ID = 512


def answer_of(event: Started) -> ProviderAnswer:
    """Return what a provider says of its answer."""
    told = (fields.get("system_fingerprint") for fields in event.extra.values())
    fingerprint = next((one for one in told if isinstance(one, str)), "")
    return ProviderAnswer(event.id[:_MAX_ID], event.model[:_MAX_ID], fingerprint[:_MAX_ID])


def asked_attributes(chat: Chat, conversation_id: str, *, parameters: bool, content: bool) -> bytes:
    """Return the attributes of a request: with `parameters` its settings, with `content` the client's own words."""
    found: list[tuple[str, AttributeValue]] = []
    if output_type := _output_type_of(chat):
        found.append(("gen_ai.output.type", output_type))
    if parameters:
        if conversation_id:
            found.append(("gen_ai.conversation.id", conversation_id[:_MAX_ID]))
        if chat.seed is not None:
            found.append(("gen_ai.request.seed", chat.seed))
        if chat.top_k is not None:
            found.append(("gen_ai.request.top_k", chat.top_k))
        if chat.n is not None and chat.n != 1:
            found.append(("gen_ai.request.choice.count", chat.n))
        if chat.embedding is not None and chat.embedding.dimensions is not None:
            found.append(("gen_ai.embeddings.dimension.count", chat.embedding.dimensions))
        if chat.embedding is not None and chat.embedding.base64:
            found.append(("gen_ai.request.encoding_formats", ("base64",)))
    if content and chat.stop:
        found.append(("gen_ai.request.stop_sequences", tuple(chat.stop)))
    return constant(*found) if found else b""


def _output_type_of(chat: Chat) -> str:
    """Return what kind of answer is asked for, where the request says it."""
    if chat.task in OUTPUT_TYPES:
        return OUTPUT_TYPES[chat.task]
    for name in chat.modalities or ():
        if name in _OF_MODALITIES:
            return _OF_MODALITIES[name]
    return "" if chat.response_format is None else _OF_FORMATS[chat.response_format.kind]
