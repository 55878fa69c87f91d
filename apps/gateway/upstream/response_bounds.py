"""Response bounds: the largest answer that a provider may send, in bytes, per event of a stream, and in JSON values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.failures import UpstreamFailure
from apps.gateway.framing import LONG, BrokenFrames
from apps.gateway.tasks import task_of
from apps.kernel.json_bounds import Bounds, OutOfBounds, check
from apps.kernel.offload import LARGE

T = TypeVar("T")

_MIB: Final = 1024 * 1024
# Texts of several choices, with all that searches cite; and what comes with images, ten of four megapixels, or audio.
_REPLY, _REPLY_WITH_MEDIA = 32 * _MIB, 128 * _MIB
_EVENT, _EVENT_WITH_MEDIA = 16 * _MIB, 64 * _MIB
# Values of an answer; where the likeliest alternatives come with each, they are some 160 a token, and vectors of a
# batch have millions.
_VALUES, _MAX_VALUES = 200_000, 3_000_000
_DEPTH: Final = 256


class ResponseBounds(NamedTuple):
    """Bytes of a whole answer and of one event of a stream, and what JSON in them may hold."""

    reply: int
    event: int
    json: Bounds


def bounds_of(chat: Chat, offer: Offer) -> ResponseBounds:
    """Return how much an offer may answer to a chat."""
    bounds = _MANY_VALUES if chat.logprobs or chat.embedding is not None else _USUAL
    if task_of(chat).may_bring_media(chat, offer):
        return bounds._replace(reply=_REPLY_WITH_MEDIA, event=_EVENT_WITH_MEDIA)
    return bounds


def read_within(body: bytes, bounds: ResponseBounds, read: Callable[[bytes], Iterable[T]]) -> Iterable[T]:
    """Return the values read from a whole answer, all at once for a large one. Raises UpstreamFailure."""
    if len(body) > LONG:
        try:
            check(body, bounds.json)
        except OutOfBounds as passed:
            raise UpstreamFailure("network", f"the answer {passed}") from None
    events = read(body)
    return events if len(body) < LARGE else list(events)


def check_event(event: bytes, bounds: ResponseBounds) -> None:
    """Raise BrokenFrames where an event of a stream holds too much."""
    try:
        check(event, bounds.json)
    except OutOfBounds as passed:
        raise BrokenFrames(f"an event of the stream {passed}") from None


_USUAL: Final = ResponseBounds(_REPLY, _EVENT, Bounds(_VALUES, _DEPTH, LONG, LONG))
_MANY_VALUES: Final = ResponseBounds(_REPLY_WITH_MEDIA, _EVENT, Bounds(_MAX_VALUES, _DEPTH, LONG, LONG))
