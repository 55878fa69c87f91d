"""Attributes of the request beside the record's columns, and of the provider's answer. Pure."""

from __future__ import annotations

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Started
from apps.gateway.tracing.request_trace import AttributeValue, ProviderAnswer
from apps.gateway.tracing.span_attributes import constant
from apps.logs.genai_names import OUTPUT_TYPES

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
