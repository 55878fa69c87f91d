"""Keep-alive HTTP clients on plain sockets, one thread each process: asks the same request again and again.

Knows sockets and clocks. Must never know what is asked. Run as its own process, so that its CPU is not the server's.
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


def run(port: int, request: bytes, connections: int, seconds: float) -> dict[str, float]:
    """Return requests per second, latencies in milliseconds (p50, p99, first byte's p50), and failures."""
    waiting = selectors.DefaultSelector()
    clients = [Client(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    for client in clients:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(client.sock, selectors.EVENT_READ, client)
        client.ask(request)
    latencies: list[float] = []
    firsts: list[float] = []
    failures = 0
    started = time.perf_counter()
    until = started + seconds
    while time.perf_counter() < until:
        for key, _ in waiting.select(0.1):
            client = key.data
            if client.take():
                now = time.perf_counter()
                latencies.append(now - client.asked_at)
                firsts.append(client.first_at - client.asked_at)
                failures += not client.received.startswith(b"HTTP/1.1 200")
                client.ask(request)
    took = time.perf_counter() - started
    for client in clients:
        client.sock.close()
    latencies.sort()
    firsts.sort()
    return {
        "requests": len(latencies),
        "per_second": len(latencies) / took,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "first_byte_p50_ms": firsts[len(firsts) // 2] * 1000,
        "failures": failures,
    }


if __name__ == "__main__":
    task = json.load(sys.stdin)
    json.dump(run(task["port"], task["request"].encode(), task["connections"], task["seconds"]), sys.stdout)
