"""Vertex AI embeddings, provider side: `predict`, with a count for each input.

Source: cloud.google.com/vertex-ai/generative-ai/docs/embeddings/get-text-embeddings (November 2026): up to 250 inputs
and 20,000 tokens a call, one input of `gemini-embedding-001`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.google.wire import encode, read_failure
from apps.gateway.dialects.chat.vertex import model_path, url_of_path
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
from apps.gateway.dialects.values.embeddings.provider.google import TASK_TYPES


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL, which ends with project and location."""
    return model_path("google", target.model_name, "predict")


def url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where the request goes."""
    return url_of_path(base_url, path(chat, target))


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. A text that is too long is refused there, not cut in silence."""
    capabilities, embedding = capabilities_of(target.facts), embedding_of(chat)
    note_options(embedding, capabilities, target, ("user", chat.user))
    options: dict[str, Any] = {}
    if embedding.input_type is not None and "input_type" in capabilities.takes:
        options["task_type"] = TASK_TYPES[embedding.input_type]
    if embedding.title is not None and "title" in capabilities.takes:
        options["title"] = embedding.title
    parameters: dict[str, Any] = {"autoTruncate": False}
    if embedding.dimensions is not None:
        parameters["outputDimensionality"] = embedding.dimensions
    return encode({"instances": [{"content": text, **options} for text in texts_of(chat)], "parameters": parameters})


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _Answer)
    if isinstance(answer, Failed):
        yield answer
        return
    vectors = [one.embeddings for one in answer.predictions]
    counts = [count_at(one.statistics, "token_count") for one in vectors]
    yield from events_of([one.values for one in vectors], sum(counts) if all(counts) else 0)


class _Vector(msgspec.Struct, frozen=True):
    values: list[float]
    statistics: Any = None


class _Prediction(msgspec.Struct):
    embeddings: _Vector


class _Answer(msgspec.Struct):
    predictions: list[_Prediction]


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="vertex",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    url=url,
)
