"""Vectors on their way: the events of an answer with vectors, and what all embedding dialects read alike."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.embeddings import Embedding
from apps.gateway.canonical.events import Event, Failed, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.dialects.reading.answer_errors import unreadable_answer
from apps.gateway.dialects.reading.whole_answers import never_streamed as never_streamed
from apps.gateway.dialects.reading.whole_answers import read_whole
from apps.gateway.dialects.values.embeddings.provider.capabilities import EmbeddingCapabilities
from apps.kernel.usage import Usage

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
