"""Jina reranking, provider side: `/rerank`, counted in tokens.

Source: api.jina.ai/redoc and jina.ai/reranker (read 2026-11-23).
"""
# alone: a format, found by the name that data files state

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, read_failure
from apps.gateway.dialects.reading.answer_errors import never_streamed, read_whole
from apps.gateway.dialects.reading.usage_numbers import count_at
from apps.gateway.dialects.values.rerank import Score, documents_of, events_of, options_of, query_of, reranking_of


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/rerank"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    # The client has the documents already.
    return encode(fields_of(chat, target, "top_n", return_documents=False))


def fields_of(chat: Chat, target: Target, count_field: str, **fixed: bool) -> dict[str, Any]:
    """Return the fields of the request. `count_field` names the number of results, `fixed` are further fields."""
    wire = {"model": target.model_name, "query": query_of(chat), "documents": documents_of(chat), **fixed}
    if (top_n := reranking_of(chat).top_n) is not None:
        wire[count_field] = top_n
    return wire | options_of(chat, target)


class Answer(msgspec.Struct):
    """A ranking on the wire."""

    results: list[Score]
    usage: Any = None


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    return read_ranking(body, Answer)


def read_ranking(body: bytes, shape: type[Answer]) -> Iterator[Event]:
    """Yield the events of a whole answer of this shape."""
    answer = read_whole(body, shape, "ranking")
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of(answer.results, tokens=count_at(answer.usage, "total_tokens"))


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="jina",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
