"""Jina embeddings, provider side: `/embeddings` with a `task`, answered as OpenAI does.

Source: Jina's API reference, api.jina.ai/openapi.json (November 2026).
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, read_failure
from apps.gateway.dialects.values.embeddings import (
    capabilities_of,
    embedding_of,
    never_streamed,
    note_options,
    texts_of,
)
from apps.gateway.dialects.values.embeddings.provider.openai import path, read_reply


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. A text that is too long is refused there, not cut in silence."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    wire: dict[str, Any] = {
        "model": target.model_name,
        "input": texts_of(chat),
        "embedding_type": "base64" if embedding.base64 and "base64" in capabilities.takes else "float",
        "normalized": True,
        "truncate": False,
    }
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire["dimensions"] = embedding.dimensions
    if (task := capabilities.word_for(embedding.input_type, target)) is not None:
        wire["task"] = task
    return encode(wire)


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="jina",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
