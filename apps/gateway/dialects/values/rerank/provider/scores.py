"""Scores on their way: the events of an answer with a ranking, and what all rerank dialects write and read alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.reranking import Ranked
from apps.gateway.dialects.reading.answer_errors import unreadable_answer
from apps.gateway.dialects.values.rerank.provider.capabilities import capabilities_of, reranking_of
from apps.kernel.usage import Usage


class Score(msgspec.Struct, frozen=True):
    """A result as all providers write it."""

    index: int
    relevance_score: float


def events_of(scores: Sequence[Score], *, tokens: int = 0, search_units: int = 0) -> Iterator[Event]:
    """Yield the events of a whole answer, the most relevant document first; 0 where the provider does not count."""
    if not scores:
        yield unreadable_answer("The provider sent an answer without a ranking")
        return
    yield Started()
    ranked = [Ranked(score.index, score.relevance_score) for score in scores]
    yield ResultsGiven(values=sorted(ranked, key=lambda one: one.score, reverse=True))
    yield Finished(reason="stop")
    usage = Usage(input=tokens, search_units=search_units)
    if usage.input or usage.search_units:
        yield UsageReported(usage=usage)


def options_of(chat: Chat, target: Target) -> dict[str, Any]:
    """Return the options that a target takes, by their canonical names; note the others as dropped."""
    reranking, capabilities = reranking_of(chat), capabilities_of(target.facts)
    wished = {
        "max_tokens_per_doc": reranking.max_tokens_per_doc,
        # Every provider truncates too long texts by default.
        "truncation": None if reranking.truncation else reranking.truncation,
    }
    options: dict[str, Any] = {}
    for name, value in wished.items():
        if value is None:
            continue
        if name in capabilities.takes:
            options[name] = value
        else:
            target.note_dropped(name, "this model's provider takes no such option")
    return options
