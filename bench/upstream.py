"""A fixed upstream: always the same answer, as quickly as one thread of Python can give it.

`python -m bench.upstream PORT [MS [EVERY]]`. Plain answers, streams of 50 chunks, each sent on its own as providers do,
and vectors; each begins so many milliseconds after its request, at once by default. With EVERY, that many milliseconds
lie between two chunks of a stream. It computes nothing for a request, so that only the server in front of it is
measured.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from array import array
from base64 import b64encode
from collections import deque
from contextlib import suppress
from typing import Any

CHUNKS = 50
_EMBEDDINGS = b"POST /v1/embeddings "
_BASE = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "echo-fast"}
_USAGE = {"prompt_tokens": 220, "completion_tokens": CHUNKS, "total_tokens": 220 + CHUNKS}
_DIMENSIONS = 1536
_TEXT = "It is sunny in the mountains today, with a light wind from the west. " * 4


def plain() -> bytes:
    """Return a whole answer."""
    message = {"role": "assistant", "content": _TEXT}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return _answer({**_BASE, "choices": choices, "usage": _USAGE})


def vector() -> bytes:
    """Return a whole answer with one vector, in base64 as clients of OpenAI's ask for it."""
    numbers = array("f", (number / _DIMENSIONS for number in range(_DIMENSIONS)))
    data = [{"object": "embedding", "index": 0, "embedding": b64encode(numbers.tobytes()).decode()}]
    usage = {"prompt_tokens": 220, "total_tokens": 220}
    return _answer({"object": "list", "data": data, "model": "embedder-fast", "usage": usage})


def _answer(fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def streamed() -> list[bytes]:
    """Return a streamed answer, piece by piece."""
    base = {**_BASE, "object": "chat.completion.chunk"}

    def chunk(**fields: Any) -> bytes:
        data = b"data: " + json.dumps({**base, **fields}).encode() + b"\n\n"
        return b"%x\r\n%b\r\n" % (len(data), data)

    def choice(delta: dict[str, str], finish: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "finish_reason": finish}]

    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [
        head + chunk(choices=choice({"role": "assistant", "content": ""})),
        *(chunk(choices=choice({"content": f" word{number}"})) for number in range(CHUNKS)),
        chunk(choices=choice({}, "stop")),
        chunk(choices=[], usage=_USAGE),
        b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
    ]


def serve(port: int, delay: float = 0.0, every: float = 0.0) -> None:
    """Serve for ever; each answer begins `delay` seconds after its request. With `every` there is no such delay, and
    each chunk of a stream follows so many seconds after the one before."""
    whole, pieces, embedded = plain(), streamed(), vector()
    # With a delay it matters when an answer goes out: epoll waits in whole milliseconds, select in microseconds.
    waiting = selectors.SelectSelector() if delay else selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    listener.setblocking(False)
    waiting.register(listener, selectors.EVENT_READ)
    received: dict[socket.socket, bytes] = {}
    # Answers, or the rest of them, that are not due yet, in the order in which they are.
    later: deque[tuple[float, socket.socket, list[bytes]]] = deque()
    while True:
        now = time.perf_counter()
        while later and later[0][0] <= now:
            _, waiter, answer = later.popleft()
            with suppress(OSError):  # The client may have gone meanwhile.
                if every and answer[1:]:
                    later.append((now + every, waiter, answer[1:]))
                    answer = answer[:1]
                for piece in answer:
                    waiter.sendall(piece)
        for key, _ in waiting.select(max(later[0][0] - now, 0) if later else None):
            if key.fileobj is listener:
                # All of them: who waited for its turn behind the others' answers would be counted as slow.
                with suppress(BlockingIOError):
                    while True:
                        client, _ = listener.accept()
                        client.setblocking(True)
                        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        waiting.register(client, selectors.EVENT_READ)
                        received[client] = b""
                continue
            client = key.fileobj  # type: ignore[assignment] # a selector returns the file object that was registered
            try:
                data = client.recv(65_536)
                received[client] += data
                while data and (asked := _whole(received[client])):
                    received[client] = received[client][len(asked) :]
                    streams = b'"stream":true' in asked or b'"stream": true' in asked
                    plainly = embedded if asked.startswith(_EMBEDDINGS) else whole
                    answer = pieces if streams else [plainly]
                    if delay:
                        later.append((time.perf_counter() + delay, client, answer))
                        continue
                    if every and streams:
                        later.append((time.perf_counter() + every, client, answer[1:]))
                        answer = answer[:1]
                    for piece in answer:
                        client.sendall(piece)
            except OSError:
                data = b""
            if not data:
                waiting.unregister(client)
                del received[client]
                client.close()


def _whole(data: bytes) -> bytes:
    """Return the first request if all of it is there."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return b""
    head = data[:end].lower()
    at = head.find(b"content-length:")
    length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return data[: end + 4 + length] if len(data) >= end + 4 + length else b""


if __name__ == "__main__":
    serve(int(sys.argv[1]), *(float(milliseconds) / 1000 for milliseconds in sys.argv[2:]))
