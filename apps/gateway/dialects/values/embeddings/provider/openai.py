"""OpenAI embeddings, provider side: `/embeddings`, as OpenAI, Mistral, Voyage and compatible servers have it.

Sources: OpenAI's API reference, docs.mistral.ai/api/endpoint/embeddings and Voyage's reference (November 2026). The
options of a model are facts (docs/adding-a-provider.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, failed, find_failure, read_failure
from apps.gateway.dialects.reading.answer_errors import read_answer
from apps.gateway.dialects.reading.usage_numbers import count_at
from apps.gateway.dialects.values.embeddings import (
    capabilities_of,
    embedding_of,
    events_of,
    never_streamed,
    note_options,
    read_as,
    texts_of,
)


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/embeddings"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    wire: dict[str, Any] = {
        "model": target.model_name,
        "input": texts_of(chat) if embedding.tokens is None else embedding.tokens,
    }
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire[capabilities.dimensions_field] = embedding.dimensions
    if embedding.base64 and "base64" in capabilities.takes:
        wire["encoding_format"] = "base64"
    if (word := capabilities.word_for(embedding.input_type, target)) is not None:
        wire["input_type"] = word
    if chat.user is not None and "user" in capabilities.takes:
        wire["user"] = chat.user
    return encode(wire)


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read, or holds an error, ends with `Failed`."""
    answer = read_as(body, _Answer)
    if isinstance(answer, Failed):
        yield _failure_in(body) or answer
        return
    items = answer.data
    if any(item.index != place for place, item in enumerate(items)) and all(item.index >= 0 for item in items):
        items = sorted(items, key=lambda item: item.index)
    tokens = count_at(answer.usage, "prompt_tokens") or count_at(answer.usage, "total_tokens")
    yield from events_of([item.embedding for item in items], tokens)


def _failure_in(body: bytes) -> Failed | None:
    """Return the failure that an answer of status 200 holds, None where it holds none."""
    try:
        answer = read_answer(body)
    except ValueError:
        return None
    failure = find_failure(answer)
    return None if failure is None else failed(answer, failure)


class _Item(msgspec.Struct):
    embedding: list[float] | str
    index: int = -1


class _Answer(msgspec.Struct):
    data: list[_Item]
    usage: Any = None


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="openai",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
