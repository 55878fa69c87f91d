"""Blocks by turns: the same connections ask the same process one request some hundred times, then another, and so on.

Two servers side by side, or one at two times, differ by more than a feature that takes a twentieth of a request. Blocks
of a tenth of a second, in an order of chance, share the machine's pace; what counts is the difference within a round.
"""

from __future__ import annotations

import random
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import mean, median

from bench.load import Client

_PATIENCE = 30.0


class Connections(AbstractContextManager["Connections"]):
    """Connections to a server that are kept open."""

    def __init__(self, port: int, count: int) -> None:
        self._waiting = selectors.DefaultSelector()
        self._clients = [Client(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
        for client in self._clients:
            client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._waiting.register(client.sock, selectors.EVENT_READ, client)

    def __exit__(self, *_error: object) -> None:
        """Close them."""
        for client in self._clients:
            client.sock.close()
        self._waiting.close()

    def ask(self, request: bytes, times: int) -> None:
        """Have a request answered so many times, over all connections at once. Raises ConnectionError, TimeoutError."""
        asked = answered = 0
        for client in self._clients[:times]:
            client.ask(request)
            asked += 1
        while answered < asked:
            ready = self._waiting.select(_PATIENCE)
            if not ready:
                raise TimeoutError(f"no answer within {_PATIENCE:g} s")
            for key, _ in ready:
                client = key.data
                if not client.take():
                    continue
                answered += 1
                if not client.received.startswith(b"HTTP/1.1 200"):
                    raise ConnectionError(bytes(client.received[:200]).decode(errors="replace"))
                if asked < times:
                    client.ask(request)
                    asked += 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Microseconds of processor time a request: the median, what it is more than the first kind, and how sure."""

    median: float
    more: float
    standard_error: float


def compare(
    connections: Connections, kinds: Mapping[str, bytes], cpu: Callable[[], float], rounds: int, times: int
) -> dict[str, Comparison]:
    """Ask each kind in blocks of so many; return the figures of each, of processor time that `cpu` tells in seconds."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    first = next(iter(kinds))
    for request in kinds.values():
        connections.ask(request, 4 * times)
    for _ in range(rounds):
        for kind in random.sample(list(kinds), len(kinds)):
            before = cpu()
            connections.ask(kinds[kind], times)
            found[kind].append((cpu() - before) / times * 1e6)
    return {kind: _compared(blocks, found[first]) for kind, blocks in found.items()}


def _compared(blocks: list[float], others: list[float]) -> Comparison:
    """Return the mean of the middle half of the differences: others work on the machine now and then."""
    differences = sorted(one - other for one, other in zip(blocks, others, strict=True))
    quarter = len(differences) // 4
    middle = differences[quarter : len(differences) - quarter]
    # The quartiles of a normal distribution are 1.35 standard deviations apart.
    spread = (middle[-1] - middle[0]) / 1.35 / len(differences) ** 0.5
    return Comparison(median(blocks), mean(middle), spread)
