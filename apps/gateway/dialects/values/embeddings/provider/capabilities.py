"""Embedding facts of a model (`facts.embeddings`): how many inputs it takes at a time, and which options.

docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.embeddings import Embedding, InputType
from apps.gateway.dialects.fact import fact, facts_reader

# Numbers in the vectors of one answer, at most: an answer is read whole.
_MAX_NUMBERS = 2_500_000
# Numbers of a vector where the dimension is not stated.
_UNSTATED_DIMENSIONS = 4_096

EmbeddingOption = Literal["base64", "input_type", "title", "tokens", "user"]


class EmbeddingCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `embeddings`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["openai", "google", "cohere", "vertex", "titan", "jina"] | None,
        fact(
            "the embedding dialect: `openai`, `google` (`batchEmbedContents`), `cohere` (`/embed`), `vertex` "
            "(`predict`), `titan` (Bedrock's `invoke`), `jina` (with a `task`)",
            default="the provider's, where it is one of the first three; else the model makes none",
        ),
    ] = None
    most: Annotated[int, fact("inputs of one call; a request with more is split", ge=1, le=2048)] = 96
    most_tokens: Annotated[int, fact("tokens of all inputs of one call", default="any number", ge=0)] = 0
    takes: Annotated[
        frozenset[EmbeddingOption],
        fact(
            "`tokens`: inputs as arrays of tokens; `base64`: answers in it; hints that are dropped otherwise: "
            "`input_type`, `title`, `user`"
        ),
    ] = frozenset()
    dimensions: Annotated[
        tuple[int, ...], fact("the lengths that a vector may be given; `[1]` is any up to the model's own")
    ] = ()
    dimensions_field: Annotated[
        Literal["dimensions", "output_dimension"], fact("what `openai` calls a vector's length")
    ] = "dimensions"
    input_types: Annotated[
        dict[str, Annotated[str, Meta(min_length=1, max_length=40)]],
        fact("the provider's words for purposes, by the gateway's (`query`, `document` …)"),
    ] = {}

    def takes_dimensions(self, wanted: int, own: int | None) -> bool:
        """Return whether vectors can have so many numbers, of a model whose own have `own`."""
        if self.dimensions == ANY_LENGTH:
            return own is None or wanted <= own
        return wanted in self.dimensions or wanted == own

    def word_for(self, purpose: InputType | None, target: Target) -> str | None:
        """Return the provider's word for what vectors are for; None for none, which is noted."""
        if purpose is None or "input_type" not in self.takes:
            return None
        word = self.input_types.get(purpose)
        if word is None:
            target.note_dropped("input_type", f"this model knows no {purpose}")
        return word

    def most_inputs(self, dimensions: int | None) -> int:
        """Return how many inputs one call may have, so that its answer can be read."""
        return max(min(self.most, _MAX_NUMBERS // (dimensions or _UNSTATED_DIMENSIONS)), 1)


ANY_LENGTH = (1,)


def capabilities_of(facts: Mapping[str, Any]) -> EmbeddingCapabilities:
    """Return what an offer's facts say of embeddings; nothing but the usual where they are silent."""
    return _read(facts) or _NOTHING_STATED


def embedding_of(chat: Chat) -> Embedding:
    """Return what a chat says of its vectors."""
    return chat.embedding or Embedding()


def texts_of(chat: Chat) -> list[str]:
    """Return the texts to embed; none where the inputs came as tokens."""
    return [part.text for part in chat.messages[0].parts]  # type: ignore[union-attr]  # all are texts


_read = facts_reader("embeddings", EmbeddingCapabilities)
_NOTHING_STATED = EmbeddingCapabilities()
