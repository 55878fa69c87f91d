"""Cohere reranking, provider side, of models that are paid by the token: `/v2/rerank`, counted in tokens.

Source: the types of Cohere's SDK 7.3 (read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects.reading.usage_numbers import count_at
from apps.gateway.dialects.values.rerank import events_of
from apps.gateway.dialects.values.rerank.provider.cohere import PROVIDER as COHERE
from apps.gateway.dialects.values.rerank.provider.cohere import read_answer


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_answer(body)
    if isinstance(answer, Failed):
        yield answer
    else:
        yield from events_of(answer.results, tokens=count_at(answer.meta, "billed_units", "input_tokens"))


PROVIDER: Final = replace(COHERE, name="cohere_tokens", read_reply=read_reply)
