"""Sockets: reads requests, carries out their steps, and notices when the client leaves. One greenlet a connection.

Waiting is always waiting on the client's socket, so a departure ends a pause or a hang at once, not after it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from gevent import socket as green
from gevent.server import StreamServer

from apps.sandbox.http_framing import CONTINUE, LAST_CHUNK, RequestReader, SandboxRequest, chunk_bytes, head_bytes
from apps.sandbox.journal import Outcome
from apps.sandbox.response_steps import Body, Close, Hang, Head, Pause, Step
from apps.sandbox.routes import SandboxReply

BACKLOG = 2048
RECEIVE = 1 << 18
"""Bytes taken from a socket at once."""

_LINGER_NOT = struct.pack("ii", 1, 0)
"""SO_LINGER on, zero seconds: closing sends a RST."""


class SandboxClientGone(Exception):
    """The client closed its side while there was something left to do for it."""


def listen(host: str, port: int, unix: str | None = None, *, reuse_port: bool = False) -> socket.socket:
    """Return a listening socket, on the path `unix` if there is one. Port 0 takes a free one. Raises OSError.

    `reuse_port`: the port is bound by another process, which keeps it for this one.
    """
    family = socket.AF_UNIX if unix else socket.AF_INET6 if ":" in host else socket.AF_INET
    if unix and Path(unix).is_socket():
        Path(unix).unlink()  # left behind by an earlier process
    listener: socket.socket = green.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(unix or (host, port))
    listener.listen(BACKLOG)
    return listener


def serve(listener: socket.socket, reply_to: Callable[[SandboxRequest], SandboxReply]) -> StreamServer:
    """Return a server that answers what comes in at `listener`; its `serve_forever` runs until its `stop`."""

    def attend(client: socket.socket, address: object) -> None:
        if client.family != socket.AF_UNIX:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        SandboxConnection(client, reply_to).serve()

    return StreamServer(listener, attend)


class SandboxConnection:
    """One client, until it or a scenario closes the connection."""

    def __init__(self, client: socket.socket, reply_to: Callable[[SandboxRequest], SandboxReply]) -> None:
        self._client = client
        self._reply_to = reply_to
        self._reader = RequestReader()

    def serve(self) -> None:
        """Answer one request after the other."""
        try:
            while request := self._next_request():
                if not self._answer(request):
                    return
        except (OSError, SandboxClientGone):
            return  # the client is gone, and the journal entry is complete

    def _next_request(self) -> SandboxRequest | None:
        reader = self._reader
        while not reader.ready and not reader.broken:
            data = self._client.recv(RECEIVE)
            if not data:
                return None
            self._take(data)
        if reader.ready:
            return reader.ready.popleft()
        self._client.sendall(head_bytes(400, (("content-length", "0"), ("connection", "close"))))
        return None

    def _take(self, data: bytes) -> None:
        self._reader.feed(data)
        if self._reader.wants_continue:
            self._reader.wants_continue = False
            self._client.sendall(CONTINUE)

    def _answer(self, request: SandboxRequest) -> bool:
        """Carry out the steps of the reply; return whether the connection stays open."""
        reply = self._reply_to(request)
        sender = Sender(self._client, request)
        outcome: Outcome = "client_closed"
        try:
            outcome = self._perform(reply.steps, sender)
        finally:
            if reply.entry:
                reply.entry.end(outcome, status=sender.status, sent=sender.sent)
        if outcome == "reset":
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        return outcome == "answered" and sender.keep_alive

    def _perform(self, steps: Iterable[Step], sender: Sender) -> Outcome:
        for step in steps:
            match step:
                case Head():
                    sender.begin(step)
                case Body():
                    sender.send(step.data)
                case Pause() | Hang():
                    sender.flush()
                    self._wait(step.seconds if isinstance(step, Pause) else None)
                case Close():
                    sender.flush()
                    return "reset" if step.reset else "cut"
        sender.finish()
        return "answered"

    def _wait(self, seconds: float | None) -> None:
        """Let time pass, for ever when `seconds` is None. Raises ClientGone as soon as the client leaves."""
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while until is None or (left := until - time.monotonic()) > 0:
                self._client.settimeout(None if until is None else left)
                data = self._client.recv(RECEIVE)
                if not data:
                    raise SandboxClientGone
                self._take(data)
        except TimeoutError:
            pass  # nothing was heard, as it should be
        finally:
            self._client.settimeout(None)


class Sender:
    """Frames one response. The head waits for the first of the body, so that most replies are one write."""

    def __init__(self, client: socket.socket, request: SandboxRequest) -> None:
        self.status: int | None = None
        self.sent = 0
        self.keep_alive = request.keep_alive
        self._client = client
        self._request = request
        self._chunked = False
        self._waiting = b""

    def begin(self, head: Head) -> None:
        """Take the head. A body of unknown length is chunked, or ends with the connection for a client of HTTP/1.0."""
        self.status = head.status
        self._chunked = head.length is None and self._request.chunks
        headers = head.headers
        if head.length is not None:
            headers += (("content-length", str(head.length)),)
        elif self._chunked:
            headers += (("transfer-encoding", "chunked"),)
        else:
            self.keep_alive = False
        if not self.keep_alive:
            headers += (("connection", "close"),)
        elif not self._request.chunks:
            headers += (("connection", "keep-alive"),)
        self._waiting = head_bytes(head.status, headers)

    def send(self, data: bytes) -> None:
        """Write a piece of the body at once."""
        self._write(chunk_bytes(data) if self._chunked else data)

    def flush(self) -> None:
        """Write the head, if it still waits."""
        if self._waiting:
            self._write(b"")

    def finish(self) -> None:
        """Write the rest of a whole response."""
        if self._chunked:
            self._write(LAST_CHUNK)
        else:
            self.flush()

    def _write(self, data: bytes) -> None:
        data, self._waiting = self._waiting + data, b""
        self._client.sendall(data)
        self.sent += len(data)
