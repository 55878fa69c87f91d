"""A request's body, read whole before anything else happens: within its route's bytes, its time and a minimum rate."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable
from typing import Protocol

from apps.kernel.errors import BodyTooLarge, Overloaded, RequestTimeout
from gateway_project.http.client_limits import ClientLimits
from gateway_project.http.request_parser import IncomingRequest
from gateway_project.http.route_limits import SMALLEST

# Seconds before a body must have kept to the minimum rate.
_GRACE = 10.0


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
            raise _too_slow(limits, clock() - began) from None
        except OSError as error:
            raise BodyAborted(str(error)) from error
        if not arrived:
            raise BodyAborted("The client closed the connection before its request was complete")


def too_large(limit: int) -> BodyTooLarge:
    """Return the error that names the limit."""
    return BodyTooLarge(f"The request body is larger than {limit} bytes")


def _too_slow(limits: ClientLimits, passed: float) -> RequestTimeout:
    if passed >= limits.body_timeout:
        return RequestTimeout(f"The request body did not arrive within {limits.body_timeout:g} s")
    return RequestTimeout(f"The request body arrived at less than {limits.body_rate} bytes a second")
