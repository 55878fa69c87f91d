"""Whole answers: what provider sides share whose answers are never streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from apps.gateway.canonical.events import Event, Failed
from apps.gateway.dialects.reading.answer_errors import unreadable_answer

T = TypeVar("T")


def read_whole(body: bytes, kind: type[T], what: str) -> T | Failed:
    """Return a whole answer as what it has to be, else the failure of one without the `what` that was asked for."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return unreadable_answer(f"The provider sent an answer that has no {what} in the way it should")


def never_streamed(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the end of a streamed answer: none is ever asked for."""
    yield unreadable_answer("The provider streamed an answer that was requested whole")
