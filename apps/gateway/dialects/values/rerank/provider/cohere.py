"""Cohere reranking, provider side: `/v2/rerank`, counted in search units.

Sources: docs.cohere.com/reference/rerank and the types of Cohere's SDK 7.3 (read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.cohere.wire import read_failure
from apps.gateway.dialects.chat.openai.wire import encode
from apps.gateway.dialects.reading.answer_errors import never_streamed, read_whole
from apps.gateway.dialects.reading.usage_numbers import count_at
from apps.gateway.dialects.values.rerank import Score, documents_of, events_of, options_of, query_of, reranking_of


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/rerank"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return encode({"model": target.model_name, **fields_of(chat, target)})


def fields_of(chat: Chat, target: Target) -> dict[str, Any]:
    """Return the fields of the request but for the model."""
    wire: dict[str, Any] = {"query": query_of(chat), "documents": documents_of(chat)}
    if (top_n := reranking_of(chat).top_n) is not None:
        wire["top_n"] = top_n
    return wire | options_of(chat, target)


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_answer(body)
    if isinstance(answer, Failed):
        yield answer
    else:
        yield from events_of(answer.results, search_units=count_at(answer.meta, "billed_units", "search_units"))


class Answer(msgspec.Struct):
    """A ranking, and what it is charged by."""

    results: list[Score]
    meta: Any = None


def read_answer(body: bytes) -> Answer | Failed:
    """Return a whole answer, else the failure of one that cannot be read."""
    return read_whole(body, Answer, "ranking")


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="cohere",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
