"""Keep-alive HTTP clients on plain sockets, one thread each process: asks the same request again and again.

Run as its own process, so that its CPU is not the server's.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Client:
    """One connection: when its request went out, and what has come back of the answer."""

    sock: socket.socket
    asked_at: float = 0.0
    first_at: float = 0.0
    received: bytearray = field(default_factory=bytearray)

    def ask(self, request: bytes) -> None:
        """Send the next request."""
        self.received.clear()
        self.first_at = 0.0
        self.asked_at = time.perf_counter()
        self.sock.sendall(request)

    def take(self) -> bool:
        """Take in what has arrived; return whether the answer is complete."""
        data = self.sock.recv(262_144)
        if not data:
            raise ConnectionError("the server closed the connection")
        if not self.received:
            self.first_at = time.perf_counter()
        self.received += data
        return _complete(self.received)


def _complete(answer: bytearray) -> bool:
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(answer[:end]).lower()
    at = head.find(b"content-length:")
    if at >= 0:
        return len(answer) >= end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
    return answer.endswith(b"\r\n0\r\n\r\n")


def run(port: int, request: bytes, connections: int, seconds: float, rate: float | None = None) -> dict[str, float]:
    """Return requests per second, latencies in milliseconds (p50, p99, first byte's p50), and failures.

    Each connection asks again as soon as it is answered; with a `rate`, requests go out at so many a second instead,
    over whichever connection is free, and one that must wait for a connection counts from when it was due.
    """
    # Where it matters when a request goes out: epoll waits in whole milliseconds, select in microseconds.
    waiting = selectors.DefaultSelector() if rate is None else selectors.SelectSelector()
    clients = [Client(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    for client in clients:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(client.sock, selectors.EVENT_READ, client)
    free = clients.copy()
    latencies: list[float] = []
    firsts: list[float] = []
    failures = 0
    started = time.perf_counter()
    until, due = started + seconds, started
    while (now := time.perf_counter()) < until:
        while free and (rate is None or due <= now):
            client = free.pop()
            client.ask(request)
            if rate is not None:
                client.asked_at = due
                due += 1 / rate
        patience = 0.1 if rate is None else max(min(due - now, 0.1), 0) if free else 0.1
        for key, _ in waiting.select(patience):
            client = key.data
            if client.take():
                ended = time.perf_counter()
                latencies.append(ended - client.asked_at)
                firsts.append(client.first_at - client.asked_at)
                failures += not client.received.startswith(b"HTTP/1.1 200")
                free.append(client)
    took = time.perf_counter() - started
    answered = len(latencies)
    # Requests under way are answered too, so that none is canceled and all are on record.
    busy = [client for client in clients if client not in free]
    patience_ends = time.perf_counter() + 30
    while busy and time.perf_counter() < patience_ends:
        for key, _ in waiting.select(1):
            if key.data.take():
                answered += 1
                busy.remove(key.data)
    for client in clients:
        client.sock.close()
    if not latencies:
        raise TimeoutError(f"not one answer within {seconds:g} s to {connections} connections")
    latencies.sort()
    firsts.sort()
    return {
        "requests": answered,
        "per_second": len(latencies) / took,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "first_byte_p50_ms": firsts[len(firsts) // 2] * 1000,
        "failures": failures,
    }


if __name__ == "__main__":
    task = json.load(sys.stdin)
    task["request"] = task["request"].encode()
    json.dump(run(**task), sys.stdout)
