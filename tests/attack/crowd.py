"""Very many clients in one thread: all at once, or so many a second whoever is answered.

Who has been answered asks again on the same connection, as SDKs do; a new one is opened when all are waiting.

Knows sockets and clocks. Must never know what is asked for.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections import Counter
from dataclasses import dataclass

from tests.attack.wire import ATTACKER, HERE, status_in

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
# How long a refusal may take to be one that costs its client nothing.
AT_ONCE = 0.05
_MOST_OPEN = 4_000


@dataclass(slots=True)
class _Client:
    sock: socket.socket
    left: bytes
    due: float
    sent: float = 0.0
    data: bytes = b""
    stays: bool = False


@dataclass(slots=True)
class Answered:
    """An answer: its status, whether it says when to come again, and the seconds since it was due and was sent."""

    status: str
    says_when: bool
    since_due: float
    since_sent: float


class Crowd:
    """Clients of one listener."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting = selectors.DefaultSelector()
        self._open: set[socket.socket] = set()
        # Connections that have been answered and may be asked again.
        self._kept: list[socket.socket] = []
        self.answers: list[Answered] = []

    @property
    def size(self) -> int:
        """How many wait for their answers."""
        return len(self._open)

    def ask(self, request: bytes, due: float) -> None:
        """Let one more ask, on a connection that nobody else is using."""
        sock = self._take_kept()
        if sock is None:
            sock = socket.socket()
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((ATTACKER, 0))
            sock.connect_ex((HERE, self._port))
        self._open.add(sock)
        self._waiting.register(sock, selectors.EVENT_WRITE, _Client(sock, request, due))

    def _take_kept(self) -> socket.socket | None:
        """Return a connection that has been answered and that the product has not closed since."""
        while self._kept:
            sock = self._kept.pop()
            try:
                sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return sock
            except OSError:
                pass
            sock.close()
        return None

    def step(self, patience: float) -> None:
        """Take what there is within so many seconds."""
        for key, events in self._waiting.select(max(patience, 0)):
            client: _Client = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    client.left = client.left[client.sock.send(client.left) :]
                    if not client.left:
                        client.sent = time.perf_counter()
                        self._waiting.modify(client.sock, selectors.EVENT_READ, client)
                elif self._read(client):
                    self._end(client, status_in(client.data))
            except BlockingIOError:
                continue
            except ConnectionRefusedError:
                self._end(client, "refused")
            except OSError:
                self._end(client, status_in(client.data) if client.data else "closed")

    def _read(self, client: _Client) -> bool:
        piece = client.sock.recv(65_536)
        client.data += piece
        if not piece:
            if not client.data:
                raise ConnectionError
            return True
        head, end, body = client.data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        whole = bool(end) and (length is None or len(body) >= int(length[1]))
        client.stays = whole and length is not None and b"\r\nconnection: close" not in head.lower()
        return whole

    def _end(self, client: _Client, status: str) -> None:
        now = time.perf_counter()
        says = b"\r\nretry-after:" in client.data.partition(b"\r\n\r\n")[0].lower()
        self.answers.append(Answered(status, says, now - client.due, now - (client.sent or client.due)))
        self._waiting.unregister(client.sock)
        self._open.discard(client.sock)
        if client.stays:
            self._kept.append(client.sock)
        else:
            client.sock.close()

    def give_up(self) -> None:
        """Leave whoever waits still."""
        for key in list(self._waiting.get_map().values()):
            self._end(key.data, "waiting")
        for sock in self._kept:
            sock.close()
        self._kept.clear()


def all_at_once(port: int, requests: list[bytes], patience: float) -> Counter[str]:
    """Return what a crowd gets that asks in one moment, and in which time."""
    crowd, began = Crowd(port), time.perf_counter()
    for request in requests:
        crowd.ask(request, began)
    while crowd.size and time.perf_counter() - began < patience:
        crowd.step(0.2)
    crowd.give_up()
    got = _told(crowd.answers)
    waits = sorted(one.since_due for one in crowd.answers)
    got["p50 ms"] = int(waits[len(waits) // 2] * 1000)
    got["last ms"] = int(waits[-1] * 1000)
    return got


def overloaded(port: int, request: bytes, seconds: float, connections: int = 64) -> Counter[str]:
    """Return what comes of twice the requests that the product can answer, and how many it can (`capacity`).

    Capacity is what so many clients get that each ask again once they are answered; both are measured by this program.
    """
    crowd, began = Crowd(port), time.perf_counter()
    while (now := time.perf_counter()) - began < seconds / 2:
        while crowd.size < connections:
            crowd.ask(request, now)
        crowd.step(0.1)
    capacity = sum(one.status == "200" for one in crowd.answers) / (time.perf_counter() - began)
    _wait(crowd, 5)

    crowd = Crowd(port)
    began = due = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        while due <= now and crowd.size < _MOST_OPEN:
            crowd.ask(request, due)
            due += 1 / (2 * max(capacity, 1))
        crowd.step(min(max(due - now, 0), 0.05))
    offered = (due - began) * 2 * capacity
    good = sum(one.status == "200" for one in crowd.answers) / (time.perf_counter() - began)
    _wait(crowd, 20)
    got = _told(crowd.answers)
    refused = sorted(one.since_sent for one in crowd.answers if one.status in {"429", "503"})
    got["capacity a second"] = int(capacity)
    got["offered a second"] = int(offered / seconds)
    got["goodput a second"] = int(good)
    if refused:
        got["refused p50 ms"] = int(refused[len(refused) // 2] * 1000)
        got["refused p99 ms"] = int(refused[int(len(refused) * 0.99)] * 1000)
    return got


def _wait(crowd: Crowd, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while crowd.size and time.perf_counter() < until:
        crowd.step(0.2)
    crowd.give_up()


def _told(answers: list[Answered]) -> Counter[str]:
    """Return how many got which status; refusals that do not say when to come again stand by themselves."""
    return Counter(
        f"{one.status} without Retry-After" if one.status in {"429", "503"} and not one.says_when else one.status
        for one in answers
    )
