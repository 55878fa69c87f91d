"""Voyage reranking, provider side: `/rerank`, counted in tokens, the query's once for each document.

Sources: docs.voyageai.com/docs/reranker and voyageai 0.5 (read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.shared.failures import read_failure
from apps.gateway.dialects.chat.openai.shared.wire import encode
from apps.gateway.dialects.reading.told_counts import count_at
from apps.gateway.dialects.reading.whole_answers import never_streamed, read_whole
from apps.gateway.dialects.values.rerank.provider.capabilities import documents_of, query_of, reranking_of
from apps.gateway.dialects.values.rerank.provider.scores import Score, events_of, options_of


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/rerank"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    wire: dict[str, Any] = {
        "model": target.model_name,
        "query": query_of(chat),
        "documents": documents_of(chat),
        "truncation": True,
    }
    if (top_n := reranking_of(chat).top_n) is not None:
        wire["top_k"] = top_n
    return encode(wire | options_of(chat, target))


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_whole(body, _Answer, "ranking")
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of(answer.data, tokens=count_at(answer.usage, "total_tokens"))


class _Answer(msgspec.Struct):
    data: list[Score]
    usage: Any = None


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="voyage",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
