"""Cohere reranking, provider side, of models that are paid by the token: `/v2/rerank`, counted in tokens.

Source: the types of Cohere's SDK 7.3 (read 2026-11-23). Knows the wire. Must never know a model by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects.rerank.provider.cohere import path, read_answer, read_events, read_failure, write_request
from apps.gateway.dialects.rerank.provider.scores import events_of
from apps.gateway.dialects.told_counts import count_at

NAME: Final = "cohere_tokens"
FRAMING: Final = "sse"

__all__ = ["FRAMING", "NAME", "path", "read_events", "read_failure", "read_reply", "write_request"]


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_answer(body)
    if isinstance(answer, Failed):
        yield answer
    else:
        yield from events_of(answer.results, tokens=count_at(answer.meta, "billed_units", "input_tokens"))
