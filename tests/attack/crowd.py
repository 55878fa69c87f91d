"""Very many clients in one thread: all at once, or so many a second regardless of answers.

A client asks again on the same connection after an answer, as SDKs do, and after a refusal not before the stated time;
a new connection is opened when all are waiting. To ask again at once after a refusal would send most requests to the
worker that has the most to do.
"""

from __future__ import annotations

import math
import re
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import cycle
from statistics import mean, stdev

from tests.attack.wire import ATTACKER, HERE, status_in

# Together they may have more connections than a worker takes from one address.
_ADDRESSES = [ATTACKER, "127.0.0.67", "127.0.0.68", "127.0.0.69"]

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after: (\d+)", re.IGNORECASE)
# How long a refusal may take to be one that costs its client nothing.
AT_ONCE = 0.05
_MAX_OPEN = 4_000
# So often capacity and overload are measured by turns, more often in a longer run; seconds of a turn then; at least.
# Seconds of each that do not count: a queue fills, and after half a second it is shortened, when fewer are answered.
_TURNS, _TURN, _MIN_TURN, _BEGINNING = 12, 1.5, 1.0, 1.0
# Seconds to wait for the remaining answers after the last request.
_PATIENCE = 20


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
        self._addresses = cycle(_ADDRESSES)
        # Connections that have been answered, and from when on they may be asked again; the first of them first.
        self._kept: list[tuple[float, int, socket.socket]] = []
        self.answers: list[Answered] = []

    @property
    def size(self) -> int:
        """How many wait for their answers."""
        return len(self._open)

    def ask(self, request: bytes, due: float) -> None:
        """Send one more request, on an idle connection or a new one."""
        sock = self._take_kept()
        if sock is None:
            sock = socket.socket()
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((next(self._addresses), 0))
            sock.connect_ex((HERE, self._port))
        self._open.add(sock)
        self._waiting.register(sock, selectors.EVENT_WRITE, _Client(sock, request, due))

    def _take_kept(self) -> socket.socket | None:
        """Return a connection that has been answered and that the product has not closed since."""
        now = time.perf_counter()
        while self._kept and self._kept[0][0] <= now:
            sock = heappop(self._kept)[2]
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
        says_when = _RETRY_AFTER.search(client.data.partition(b"\r\n\r\n")[0])
        waited = now - (client.sent or client.due)
        self.answers.append(Answered(status, says_when is not None, now - client.due, waited))
        self._waiting.unregister(client.sock)
        self._open.discard(client.sock)
        if client.stays:
            again = now + int(says_when[1]) if says_when else now
            heappush(self._kept, (again, len(self.answers), client.sock))
        else:
            client.sock.close()

    def give_up(self) -> None:
        """Give up the requests that still wait."""
        for key in list(self._waiting.get_map().values()):
            self._end(key.data, "waiting")
        for _, _, sock in self._kept:
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


def overloaded(port: int, request: bytes, seconds: float, clients: int = 64) -> Counter[str]:
    """Return what comes of twice the requests that the product can answer, and how many it can (`capacity`).

    Capacity is what so many clients get that each ask again once they are answered. Both are measured by this program,
    by turns: a machine's speed changes from one second to the next, so the answers in a turn of overload are
    compared with the capacity before and after it. `goodput per cent` is the mean, with its standard error beside it.
    """
    crowd = Crowd(port)
    turns = max(_TURNS, int(seconds / _TURN))
    turn = max(seconds / turns, _MIN_TURN)
    # To open connections.
    _capacity(crowd, request, 1.0, clients)
    capacities = [max(_capacity(crowd, request, turn, clients), 1)]
    goods, answers = list[float](), list[Answered]()
    for _ in range(turns):
        before = len(crowd.answers)
        goods.append(_goodput(crowd, request, 2 * capacities[-1], turn))
        answers += crowd.answers[before:]
        capacities.append(max(_capacity(crowd, request, turn, clients), 1))
    crowd.give_up()
    shares = [
        2 * good / (before + after) for good, before, after in zip(goods, capacities, capacities[1:], strict=False)
    ]
    got = _told(answers)
    refused = sorted(one.since_sent for one in answers if one.status in {"429", "503"})
    got["capacity a second"] = int(mean(capacities))
    got["offered a second"] = 2 * got["capacity a second"]
    got["goodput a second"] = int(mean(goods))
    got["goodput per cent"] = round(mean(shares) * 100)
    got["its standard error per cent"] = round(stdev(shares) / math.sqrt(turns) * 100)
    if refused:
        got["refused p50 ms"] = int(refused[len(refused) // 2] * 1000)
        got["refused p99 ms"] = int(refused[int(len(refused) * 0.99)] * 1000)
    return got


def _capacity(crowd: Crowd, request: bytes, seconds: float, clients: int) -> float:
    """Return how many are answered a second of so many that ask again at once."""

    def ask(now: float) -> None:
        while crowd.size < clients:
            crowd.ask(request, now)

    return _steady_rate(crowd, ask, seconds)


def _goodput(crowd: Crowd, request: bytes, offered: float, seconds: float) -> float:
    """Return the answers a second when so many requests a second come, regardless of answers."""
    due = time.perf_counter()

    def ask(now: float) -> None:
        nonlocal due
        while due <= now and crowd.size < _MAX_OPEN:
            crowd.ask(request, due)
            due += 1 / offered

    return _steady_rate(crowd, ask, seconds)


def _steady_rate(crowd: Crowd, ask: Callable[[float], None], seconds: float) -> float:
    """Let `ask` go on, then wait for the open requests; return the answers a second that were no refusals.

    Neither the beginning counts, nor answers that come after the last request.
    """
    began = time.perf_counter()
    until, before, steady_since = began + _BEGINNING + seconds, 0, math.inf
    while (now := time.perf_counter()) < until:
        if now - began >= _BEGINNING and steady_since == math.inf:
            steady_since, before = now, _count_good(crowd)
        ask(now)
        crowd.step(0.002)
    rate = (_count_good(crowd) - before) / (time.perf_counter() - steady_since)
    while crowd.size and time.perf_counter() < until + _PATIENCE:
        crowd.step(0.2)
    return rate


def _count_good(crowd: Crowd) -> int:
    return sum(one.status == "200" for one in crowd.answers)


def _told(answers: list[Answered]) -> Counter[str]:
    """Return how many got which status; refusals that do not say when to come again stand by themselves."""
    return Counter(
        f"{one.status} without Retry-After" if one.status in {"429", "503"} and not one.says_when else one.status
        for one in answers
    )
