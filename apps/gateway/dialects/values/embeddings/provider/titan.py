"""Titan embeddings on Bedrock, provider side: `invoke` with one text.

Source: docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.bedrock.wire import encode, read_failure
from apps.gateway.dialects.reading.usage_numbers import read_count
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
    return f"/model/{quote(target.model_name, safe='')}/invoke"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    embedding = embedding_of(chat)
    note_options(embedding, capabilities_of(target.facts), target, ("user", chat.user))
    wire: dict[str, Any] = {"inputText": texts_of(chat)[0]}
    if embedding.dimensions is not None and embedding.dimensions != target.facts.get("dimensions"):
        wire["dimensions"] = embedding.dimensions
    return encode(wire)


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_as(body, _Answer)
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([answer.embedding], read_count(answer.tokens))


class _Answer(msgspec.Struct):
    embedding: list[float]
    tokens: Any = msgspec.field(default=None, name="inputTextTokenCount")


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="titan",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
