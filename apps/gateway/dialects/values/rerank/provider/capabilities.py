"""Rerank facts of a model (`facts.rerank`): how many documents it takes at a time, and which options.

docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.reranking import Reranking
from apps.gateway.dialects.fact import fact, facts_reader

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
