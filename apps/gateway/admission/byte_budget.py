"""Byte budget: shed load by the bytes of large requests and answers in flight, per worker and per organization in it.

Small bodies are not counted: the number of connections bounds them.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import gevent

from apps.gateway.client.http_request import ClientRequest
from apps.gateway.metrics import BYTES_IN_FLIGHT
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.concurrency.native_thread_pool import LARGE
from apps.kernel.errors import Overloaded, RateLimited

# Seconds after which it is worth to try again: about as long as a large request takes to be read and passed on.
_RETRY_AFTER: Final = 2
_OF_WORKER, _OF_ORGANIZATION = CachedSetting("WORKER_BYTES_IN_FLIGHT"), CachedSetting("ORGANIZATION_BYTES_IN_FLIGHT")
# Answers are paid for by the time they come: they may take so many times the budget, that refuses new requests at once.
_FOR_ANSWERS: Final = 2

# Bytes from which it is worth a look whether they are garbage, some seconds after the request.
_MUCH, _COLLECT_AFTER = 4 * 1024 * 1024, 2.0
# Bytes for a body that is read as it comes, however large it is: its pieces, and the values made from them.
STREAMED_BYTES: Final = 4 * 1024 * 1024
# Bytes of a piece of a body that had to be read whole.
_PIECE: Final = 64 * 1024
_collecting = False
_held: defaultdict[UUID, int] = defaultdict(int)


class ByteReservation:
    """One request's share of this worker's and its organization's byte budget. Release it whatever happens."""

    __slots__ = ("_organization_id", "size")

    def __init__(self, organization_id: UUID) -> None:
        self._organization_id = organization_id
        self.size = 0

    def reserve(self, size: int) -> None:
        """Reserve more bytes of a request. A request that is alone is let in however large it is.

        Raises RateLimited when the organization holds too many, Overloaded when the worker does.
        """
        own, all_held = _held.get(self._organization_id, 0), sum(_held.values())
        if own and own + size > _OF_ORGANIZATION.value:
            raise RateLimited(
                f"Requests and answers of {own} bytes are under way for this organization; with {size} more it would be"
                f" more than {_OF_ORGANIZATION.value}: send fewer large requests at once",
                code="bytes_in_flight_exceeded",
                retry_after=_RETRY_AFTER,
            )
        if all_held and all_held + size > _OF_WORKER.value:
            raise Overloaded("Too many large requests are under way; try again shortly", retry_after=_RETRY_AFTER)
        self._add(size)

    def reserve_for_answer(self, size: int) -> None:
        """Reserve more bytes of an answer. Raises Overloaded far beyond the budget, unless it is alone."""
        self._add(size)
        own, all_held = _held[self._organization_id], sum(_held.values())
        if (own > self.size and own > _FOR_ANSWERS * _OF_ORGANIZATION.value) or (
            all_held > self.size and all_held > _FOR_ANSWERS * _OF_WORKER.value
        ):
            raise Overloaded("Too many large answers are under way; try again shortly", retry_after=_RETRY_AFTER)

    def release(self) -> None:
        """Release all that is held; a second call does nothing."""
        if self.size >= _MUCH:
            _collect_soon()
        if self.size:
            self._add(-self.size)

    def __del__(self) -> None:
        """Give back what a request that ended in no foreseen way still holds."""
        if self.size:
            self._add(-self.size)

    def _add(self, size: int) -> None:
        self.size += size
        _held[self._organization_id] += size
        if not _held[self._organization_id]:
            del _held[self._organization_id]
        BYTES_IN_FLIGHT.inc(size)


def _collect_soon() -> None:
    """Run the garbage collector in a moment: a failure's traceback may hold a body in a cycle, and cycles are looked
    for seldom (`worker_warmup.freeze_loaded_objects`). Once for all that end meanwhile."""
    global _collecting
    if not _collecting:
        _collecting = True
        gevent.spawn_later(_COLLECT_AFTER, _collect)


def _collect() -> None:
    global _collecting
    _collecting = False
    gc.collect()


def read_body(request: ClientRequest, organization_id: UUID) -> tuple[bytes, ByteReservation]:
    """Return a call's body and what it holds, counted from before it is read where the client says how large it is.

    Raises as `ClientRequest.body` and `ByteReservation.reserve` do.
    """
    request.byte_reservation = hold = ByteReservation(organization_id)
    stated = request.content_length
    if stated is not None and LARGE < stated <= request.body_limit:
        hold.reserve(stated)
    body = request.body()
    # A chunked one, or one that was packed.
    if len(body) > max(LARGE, hold.size):
        hold.reserve(len(body) - hold.size)
    return body, hold


class IncomingBody:
    """A call's body, read as it comes. `left` is how many of its bytes are still to come."""

    def __init__(self, request: ClientRequest, organization_id: UUID, limit: int) -> None:
        """Count what it takes up; one that is packed, or does not say how long it is, is read whole.

        Raises as `ClientRequest.body_pieces` and `read_body` do.
        """
        if request.is_streamable:
            request.byte_reservation = hold = ByteReservation(organization_id)
            self.left = request.content_length or 0
            if self.left > LARGE:
                hold.reserve(min(self.left, STREAMED_BYTES))
            self._pieces = request.body_pieces(limit)
        else:
            body, _ = read_body(request, organization_id)
            self.left = len(body)
            self._pieces = (body[start : start + _PIECE] for start in range(0, len(body), _PIECE))

    def __iter__(self) -> Iterator[bytes]:
        """Yield its pieces."""
        for piece in self._pieces:
            self.left -= len(piece)
            yield piece
