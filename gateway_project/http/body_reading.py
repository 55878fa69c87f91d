"""A request's body, read within its route's bytes, its time and a minimum rate.

It is read whole before anything else happens, or by its endpoint as it arrives.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable
from typing import Protocol

from apps.kernel.errors import BodyTooLarge, Overloaded, RequestTimeout
from gateway_project.http.limits import SMALLEST, ClientLimits
from gateway_project.http.request_parser import BadRequest, IncomingRequest

# Seconds before a body must have kept to the minimum rate.
_GRACE = 10.0
# Seconds that a body may take at most, however large it is.
_MAX_TIMEOUT = 1800.0
# Bytes of memory for a body that is read as it arrives, with its endpoint's use of them.
STREAMED_MEMORY = 4 * 1024 * 1024


class BodyAborted(OSError):
    """The client closed its connection before its request was complete."""


class BodySource(Protocol):
    """A connection, as far as reading a body goes."""

    def receive(self, patience: float | None = None) -> bool:
        """Take in what arrives next within so many seconds; False at the end. Raises TimeoutError, OSError."""

    def go_on(self) -> None:
        """Tell a client that waits for it to send its body."""

    def has_left(self) -> bool:
        """Tell whether the client has closed the connection."""


class BodyMemory:
    """Count of the bytes of large bodies held by one worker, for all clients together and for each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._held_by: Counts[str] = Counts()

    def hold(self, address: str | None, size: int) -> None:
        """Account for so many bytes more. Raises Overloaded when that is too much, for all or for half of it by one.

        Without an address (a proxy's clients) only the whole counts.
        """
        if self._held + size > self._most or (address and self._held_by[address] + size > self._most // 2):
            raise Overloaded("The gateway holds too many large requests right now; try again shortly", retry_after=1)
        self._held += size
        if address:
            self._held_by[address] += size

    def let_go(self, address: str | None, size: int) -> None:
        """Give bytes back."""
        self._held -= size
        if address:
            self._held_by[address] -= size
            if self._held_by[address] <= 0:
                del self._held_by[address]


def read_body(
    source: BodySource,
    request: IncomingRequest,
    limit: int,
    limits: ClientLimits,
    hold: Callable[[int], object],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Read the rest of a request's body; `hold` is called with the bytes beyond the smallest limit as they arrive.

    Raises BodyTooLarge, RequestTimeout, Overloaded, BadRequest, BodyAborted.
    """
    began = clock()
    held = 0
    source.go_on()
    while True:
        if request.received > limit:
            raise too_large(limit)
        if request.received - held > SMALLEST:
            hold(request.received - held)
            held = request.received
        if request.complete:
            return
        patience = min(limits.body_timeout, _GRACE + request.received / limits.body_rate) - (clock() - began)
        try:
            if patience <= 0:
                raise TimeoutError
            arrived = source.receive(patience)
        except TimeoutError:
            raise _too_slow(limits, clock() - began, limits.body_timeout) from None
        except OSError as error:
            raise BodyAborted(str(error)) from error
        if not arrived:
            raise BodyAborted("The client closed the connection before its request was complete")


class StreamedBody:
    """A body whose endpoint reads it as it comes (`wsgi.input`): the client is waited for when more is asked for.

    The time that the endpoint takes between two reads is not the client's. A body that is larger than the largest that
    is read whole may take longer in proportion.
    """

    def __init__(
        self,
        source: BodySource,
        request: IncomingRequest,
        length: int,
        limits: ClientLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._request = request
        self._limits = limits
        self._timeout = min(
            limits.body_timeout * max(1.0, length / limits.body), max(_MAX_TIMEOUT, limits.body_timeout)
        )
        self._clock = clock
        self._waited = 0.0

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer at the end only. Raises RequestTimeout, BodyAborted."""
        pieces: list[bytes] = []
        left = size
        while left and (piece := self._next_piece(left)):
            pieces.append(piece)
            if left > 0:
                left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _next_piece(self, size: int) -> bytes:
        """Return the next bytes, at most `size` unless that is negative; empty at the end."""
        body = self._request.body
        self._source.go_on()
        while not body:
            if self._request.complete:
                return b""
            self._receive()
        piece = body.popleft()
        if 0 <= size < len(piece):
            body.appendleft(piece[size:])
            piece = piece[:size]
        return piece

    def _receive(self) -> None:
        began, limits = self._clock(), self._limits
        patience = min(self._timeout, _GRACE + self._request.received / limits.body_rate) - self._waited
        try:
            if patience <= 0:
                raise TimeoutError
            arrived = self._source.receive(patience)
        except TimeoutError:
            raise _too_slow(limits, self._waited + self._clock() - began, self._timeout) from None
        except OSError as error:
            raise BodyAborted(str(error)) from error
        except BadRequest as error:
            # It is in what follows the body, of which nothing will be read.
            self._request.keep_alive = False
            if not self._request.complete:
                raise BodyAborted(error.message) from error
            return
        self._waited += self._clock() - began
        if not arrived:
            raise BodyAborted("The client closed the connection before its request was complete")


def too_large(limit: int) -> BodyTooLarge:
    """Return the error that names the limit."""
    return BodyTooLarge(f"The request body is larger than {limit} bytes")


def _too_slow(limits: ClientLimits, passed: float, timeout: float) -> RequestTimeout:
    if passed >= timeout:
        return RequestTimeout(f"The request body did not arrive within {timeout:g} s")
    return RequestTimeout(f"The request body arrived at less than {limits.body_rate} bytes a second")
