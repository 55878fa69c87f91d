"""Voyage reranking, provider side: `/rerank`, counted in tokens, the query's once for each document.

Sources: docs.voyageai.com/docs/reranker and voyageai 0.5 (read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event
from apps.gateway.dialects.chat.openai.wire import encode
from apps.gateway.dialects.values.rerank import Score
from apps.gateway.dialects.values.rerank.provider.jina import PROVIDER as JINA
from apps.gateway.dialects.values.rerank.provider.jina import Answer, fields_of, read_ranking


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return encode(fields_of(chat, target, "top_k", truncation=True))


class _Answer(Answer, kw_only=True):
    results: list[Score] = msgspec.field(name="data")


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    return read_ranking(body, _Answer)


PROVIDER: Final = replace(JINA, name="voyage", write_request=write_request, read_reply=read_reply)
