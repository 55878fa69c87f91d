"""Acceptor of one worker: takes its share of new connections, and begins to serve them round-robin by address.

A few are begun in each turn of the event loop. The system's queue is first in, first out: one address that opens
thousands of connections would have everybody behind it wait for all of them, so they are taken out of it quickly. To
begin to serve one costs far more than to take it; a few at a time leave the event loop to those that are served
already.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable, Hashable
from typing import Any, Final

from gevent.server import StreamServer

from apps.kernel.concurrency.fairness import FairQueue

# Connections that are accepted, and that are started, in one turn of the loop at most: a few milliseconds.
_MAX_TAKEN, _MAX_BEGUN = 128, 8
# So many may wait to be served; the others stay in the system's queue.
_MAX_WAITING: Final = 4096
# Seconds between two looks at those that wait.
_TICK: Final = 0.001
# Where `struct tcp_info` of <linux/tcp.h> has how many wait to be accepted, of a socket that listens (`tcpi_unacked`).
_QUEUED_AT, _QUEUED = 24, struct.Struct("=I")


class Acceptor(StreamServer):
    """Accepts for one of so many workers that listen on the same socket; `client_of` tells whose an address is."""

    def __init__(self, listener: Any, workers: int, client_of: Callable[[Any], Hashable], **settings: Any) -> None:
        self._workers = workers
        self._client_of = client_of
        self._waiting: FairQueue[tuple[Any, ...]] = FairQueue()
        super().__init__(listener, **settings)
        self._tick = self.loop.timer(_TICK, _TICK, ref=False)

    @property
    def max_accept(self) -> int:  # type: ignore[override] # gevent reads it in each turn
        """How many are accepted now, of those that wait in the system's queue; none when too many wait here."""
        share = max(1, -(-count_queued(self.socket) // self._workers))
        return min(_MAX_TAKEN, share, _MAX_WAITING - len(self._waiting))

    def do_handle(self, *accepted: Any) -> None:
        """Let a new connection, as gevent gives it, wait for its turn; it has come at once when no other waits."""
        self._waiting.put(self._client_of(accepted[1]), accepted)
        if len(self._waiting) == 1:
            # Later in this turn of the loop: by then all that it takes are there, and are begun in rotation.
            self.loop.run_callback(self._begin_some)

    def close(self) -> None:
        """Accept no more; those that were accepted are served, as far as there is room for them."""
        self._tick.stop()
        while self._waiting and not self.full():
            self._begin_one()
        while self._waiting:
            self.do_close(*self._waiting.take())
        super().close()

    def _begin_some(self) -> None:
        """Begin to serve as many as one turn may. Runs in the event loop."""
        begun = 0
        while self._waiting and begun < _MAX_BEGUN and not self.full():
            self._begin_one()
            begun += 1
        if self._waiting:
            self._tick.start(self._begin_some)
        else:
            self._tick.stop()

    def _begin_one(self) -> None:
        accepted = self._waiting.take()
        try:
            super().do_handle(*accepted)
        except Exception:  # noqa: BLE001 - gevent has closed it; the others are served
            self.loop.handle_error((accepted[1:], self), *sys.exc_info())


def count_queued(listener: Any) -> int:
    """Return how many connections wait to be accepted; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    try:
        told = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED_AT + _QUEUED.size)
    except OSError:
        # Not TCP.
        return 0
    return int(_QUEUED.unpack_from(told, _QUEUED_AT)[0]) if len(told) == _QUEUED_AT + _QUEUED.size else 0
