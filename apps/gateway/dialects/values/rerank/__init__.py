"""Rerank formats: the facts that a model may state, and scores as each reads them.

A request to rank documents is a chat whose `reranking` says how many are wanted. A format is a provider side for such
chats; it is found by the name that the data files state under `rerank`, else by that of the provider's chat dialect
where the two go together. docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.task_options import Ranked, Reranking
from apps.gateway.dialects import fact, facts_reader
from apps.gateway.dialects.reading.answers import unreadable_answer
from apps.kernel.usage import Usage

RerankOption = Literal["max_tokens_per_doc", "truncation"]


class RerankCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `rerank`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["cohere", "cohere_tokens", "jina", "voyage", "bedrock"] | None,
        fact(
            "the rerank dialect: `cohere`, `jina` and `voyage` (`/rerank`, each in its words), `cohere_tokens` of "
            "models that Cohere charges by the token, `bedrock` (`invoke` of Cohere's models)",
            default="`cohere` of a provider of that dialect, else the model ranks nothing",
        ),
    ] = None
    most: Annotated[int, fact("documents of one request; one with more is refused", ge=1, le=10_000)] = 1_000
    takes: Annotated[
        frozenset[RerankOption],
        fact("options that are dropped otherwise: `max_tokens_per_doc`; `truncation: false`"),
    ] = frozenset()


def capabilities_of(facts: Mapping[str, Any]) -> RerankCapabilities:
    """Return what an offer's facts say of reranking; nothing but the usual where they are silent."""
    return _read(facts) or _NOTHING_STATED


def reranking_of(chat: Chat) -> Reranking:
    """Return what a chat says of its ranking."""
    return chat.reranking or Reranking()


def query_of(chat: Chat) -> str:
    """Return what the documents are compared to."""
    return chat.messages[0].parts[0].text  # type: ignore[union-attr]  # all parts are texts


def documents_of(chat: Chat) -> list[str]:
    """Return the documents to rank."""
    return [part.text for part in chat.messages[0].parts[1:]]  # type: ignore[union-attr]  # all parts are texts


def results_of(chat: Chat) -> int:
    """Return how many documents the answer has."""
    count = len(chat.messages[0].parts) - 1
    return min(reranking_of(chat).top_n or count, count)


_read = facts_reader("rerank", RerankCapabilities)
_NOTHING_STATED = RerankCapabilities()


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
