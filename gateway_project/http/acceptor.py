"""Acceptor of one worker: takes new connections from the system's queue, as many at a time as are this worker's share.

One each turn of the event loop, which spreads few connections evenly over workers, lets a flood of them stand in the
queue, and who comes behind it waits for all of it. Knows the queue's length. Must never know what a connection is for.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any, Final

from gevent.server import StreamServer

# At most so many in one turn of the loop: a few milliseconds.
_MOST: Final = 32
# Where `struct tcp_info` of <linux/tcp.h> has how many wait to be accepted, of a socket that listens (`tcpi_unacked`).
_QUEUED_AT, _QUEUED = 24, struct.Struct("=I")


class Acceptor(StreamServer):
    """Accepts for one of so many workers that listen on the same socket."""

    def __init__(self, listener: Any, workers: int, **settings: Any) -> None:
        self._workers = workers
        super().__init__(listener, **settings)

    @property
    def max_accept(self) -> int:  # type: ignore[override] # gevent reads it anew in each turn
        """How many are accepted now, of those that wait."""
        return max(1, min(_MOST, -(-count_queued(self.socket) // self._workers)))


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
