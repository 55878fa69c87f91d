"""Embedding formats: the facts that a model may state, and vectors as each reads them.

A request for embeddings is a chat whose `embedding` says what the vectors are to be like. A format is a provider side
for such chats; it is found by the name that the data files state under `embeddings`, else by that of the provider's
chat dialect where the two go together. docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.task_options import Embedding, InputType
from apps.gateway.dialects import fact, facts_reader
from apps.gateway.dialects.reading.answers import read_whole, unreadable_answer
from apps.kernel.usage import Usage

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


T = TypeVar("T")
Vector = list[float] | str

_BYTES_OF_FLOAT: Final = 4


def events_of(vectors: Sequence[Vector], tokens: int) -> Iterator[Event]:
    """Yield the events of a whole answer; `tokens` are those of all inputs, 0 where they were not counted."""
    if not vectors or not all(map(_is_vector, vectors)):
        yield unreadable_answer("The provider sent an answer without vectors")
        return
    yield Started()
    yield ResultsGiven(values=list(vectors))
    yield Finished(reason="stop")
    if tokens:
        yield UsageReported(usage=Usage(input=tokens))


def read_as(body: bytes, kind: type[T]) -> T | Failed:
    """Return a whole answer as what it has to be, else the failure of one that cannot be read."""
    return read_whole(body, kind, "vectors")


def to_base64(vector: Vector) -> str:
    """Return a vector as base64 of float32, little-endian."""
    if isinstance(vector, str):
        return vector
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()


def to_numbers(vector: Vector) -> list[float]:
    """Return a vector as numbers."""
    if not isinstance(vector, str):
        return vector
    numbers = array("f")
    numbers.frombytes(b64decode(vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def note_options(
    embedding: Embedding, capabilities: EmbeddingCapabilities, target: Target, *also: tuple[str, Any]
) -> None:
    """Note the hints that a target does not support as dropped: the vectors are usable without them."""
    hints = (("input_type", embedding.input_type), ("title", embedding.title), *also)
    for name, value in hints:
        if value is not None and name not in capabilities.takes:
            target.note_dropped(name, "this model's provider takes no such option")


def _is_vector(vector: Any) -> bool:
    if not isinstance(vector, str):
        return bool(vector)
    try:
        # `b64decode` would copy it first.
        data = a2b_base64(vector, strict_mode=True)
    except ValueError:
        return False
    return bool(data) and len(data) % _BYTES_OF_FLOAT == 0
