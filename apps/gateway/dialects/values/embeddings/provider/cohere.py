"""Cohere embeddings, provider side: `/v2/embed`, which requires the purpose of the vectors.

Source: docs.cohere.com/reference/embed, as of 2025.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.canonical.task_options import InputType
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.cohere.wire import read_failure
from apps.gateway.dialects.chat.openai.wire import encode
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

# Cohere's words for what vectors are for; a purpose that it has no word for is the nearest that it has.
_INPUT_TYPES: Final[dict[InputType, str]] = {
    "query": "search_query",
    "document": "search_document",
    "similarity": "clustering",
    "classification": "classification",
    "clustering": "clustering",
    "question_answering": "search_query",
    "fact_verification": "search_query",
    "code_query": "search_query",
}
_DEFAULT_INPUT_TYPE: Final = "search_document"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/embed"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. A text that is too long is refused there, not cut in silence."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(msgspec.structs.replace(embedding, input_type=None), capabilities, target, ("user", chat.user))
    wire: dict[str, Any] = {
        "model": target.model_name,
        "texts": texts_of(chat),
        "input_type": _DEFAULT_INPUT_TYPE if embedding.input_type is None else _INPUT_TYPES[embedding.input_type],
        "embedding_types": ["float"],
        "truncate": "NONE",
    }
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire["output_dimension"] = embedding.dimensions
    return encode(wire)


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _Answer)
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of(answer.embeddings.numbers, count_at(answer.meta, "billed_units", "input_tokens"))


class _Vectors(msgspec.Struct):
    numbers: list[list[float]] = msgspec.field(name="float")


class _Answer(msgspec.Struct):
    embeddings: _Vectors
    meta: Any = None


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="cohere",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
