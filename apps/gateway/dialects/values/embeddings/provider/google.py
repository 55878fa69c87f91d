"""Google embeddings, provider side: `batchEmbedContents` of AI Studio, which tells no counts.

Source: ai.google.dev/api/embeddings, as of 2025.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.canonical.task_options import InputType
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.google.wire import encode, read_failure
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

# Google's words for what vectors are for.
TASK_TYPES: Final[dict[InputType, str]] = {
    "query": "RETRIEVAL_QUERY",
    "document": "RETRIEVAL_DOCUMENT",
    "similarity": "SEMANTIC_SIMILARITY",
    "classification": "CLASSIFICATION",
    "clustering": "CLUSTERING",
    "question_answering": "QUESTION_ANSWERING",
    "fact_verification": "FACT_VERIFICATION",
    "code_query": "CODE_RETRIEVAL_QUERY",
}


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/models/{target.model_name}:batchEmbedContents"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    options: dict[str, Any] = {"model": f"models/{target.model_name}"}
    if embedding.input_type is not None and "input_type" in capabilities.takes:
        options["taskType"] = TASK_TYPES[embedding.input_type]
    if embedding.title is not None and "title" in capabilities.takes:
        options["title"] = embedding.title
    if embedding.dimensions is not None:
        options["outputDimensionality"] = embedding.dimensions
    return encode({"requests": [{**options, "content": {"parts": [{"text": text}]}} for text in texts_of(chat)]})


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _Answer)
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([one.values for one in answer.embeddings], count_at(answer.usage, "promptTokenCount"))


class _Vector(msgspec.Struct, frozen=True):
    values: list[float]


class _Answer(msgspec.Struct):
    embeddings: list[_Vector]
    usage: Any = msgspec.field(default=None, name="usageMetadata")


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="google",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
