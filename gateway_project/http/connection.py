"""One client's connection from its first request to its last: read, serve, answer, and wait for the next.

Knows sockets and patience. Must never know what is asked for.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from io import BytesIO
from typing import Any

import gevent

from gateway_project.http.reading import BadRequest, Incoming, Limits, Reader
from gateway_project.http.writing import Answer

READ_SIZE = 65_536
_READ = 1  # libev's word.
# Seconds: for a head once it has begun, between two pieces of a body, for the client to take a piece of an answer, and
# for what it still sends after an answer that did not wait for it.
HEAD_PATIENCE, BODY_PATIENCE, SEND_PATIENCE, FAREWELL = 20.0, 60.0, 120.0, 2.0
# A client that always has another request ready lets others in after so many.
_FAIR_SHARE = 8


class TooSlow(TimeoutError):
    """A client that did not send, or take, anything for too long."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all connections of a listener: the application, limits, and what every environment begins with.

    `keepalive` is how many seconds a connection may wait for its next request; `scheme_headers` are the WSGI names and
    values by which a proxy that `trusts` knows by its address tells that the client came over TLS.
    """

    application: Callable[..., Iterable[bytes]]
    limits: Limits
    environ: dict[str, Any]
    keepalive: float
    trusts: Callable[[str], bool]
    scheme_headers: dict[str, str]
    failed: Callable[[str], object]


class Connection:
    """A client's connection."""

    def __init__(self, terms: Terms, sock: socket.socket, address: Any, stopping: Callable[[], bool]) -> None:
        self._terms = terms
        self._sock = sock
        self._reader = Reader(terms.limits)
        self._hub = gevent.get_hub()
        self._readable = self._hub.loop.io(sock.fileno(), _READ)
        self._stopping = stopping
        host, port = address[:2] if isinstance(address, tuple) else ("", "")
        self._environ = {
            **terms.environ,
            "REMOTE_ADDR": host,
            "REMOTE_PORT": str(port),
            "gunicorn.socket": sock,
        }
        self._trusted = terms.trusts(host)

    def serve(self, idle: Any, served: Callable[[], object]) -> None:
        """Serve until the client leaves, is idle too long, or the worker stops. `idle` is what it waits in."""
        with suppress(OSError):
            if self._sock.family in {socket.AF_INET, socket.AF_INET6}:
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            count = 0
            try:
                while (request := self._next(idle)) is not None:
                    served()
                    if not self._answer(request):
                        return
                    count += 1
                    if count % _FAIR_SHARE == 0:
                        gevent.sleep(0)
            except BadRequest as error:
                self._refuse(error)
            finally:
                self._reader.close()
                self._readable.close()

    def _next(self, idle: Any) -> Incoming | None:
        """Return the next request once its head is there, None when there will be none. Raises BadRequest."""
        requests = self._reader.requests
        if not requests:
            self._sock.settimeout(None)
            data = b""
            with idle:
                # First: the next request is rarely there already, and to try in vain costs more than to wait.
                self._hub.wait(self._readable)
                data = self._sock.recv(READ_SIZE)
            if not data:
                return None
            self._reader.feed(data)
        if not requests or not requests[0].head_done:
            with gevent.Timeout(HEAD_PATIENCE, BadRequest(408, "The request's headers did not arrive in time")):
                while not requests or not requests[0].head_done:
                    if not self.receive():
                        return None
        return requests[0]

    def receive(self) -> bool:
        """Take in what arrives next; False at the end. Raises BadRequest, OSError."""
        data = self._sock.recv(READ_SIZE)
        if data:
            self._reader.feed(data)
        return bool(data)

    def _answer(self, request: Incoming) -> bool:
        """Answer a request; return whether another may follow."""
        environ = request.environ
        environ.update(self._environ)
        environ["wsgi.url_scheme"] = self._scheme(environ)
        environ["wsgi.input"] = BytesIO(_taken(request)) if request.complete else Body(self, self._sock, request)
        answer = Answer(
            self._send,
            method=environ["REQUEST_METHOD"],
            protocol=environ["SERVER_PROTOCOL"],
            keep_alive=request.keep_alive and request.complete and not self._stopping(),
        )
        body: Iterable[bytes] = ()
        try:
            body = self._terms.application(environ, answer.start)
            # A body that came while it was served leaves the connection as good as new.
            answer.keep_alive = request.keep_alive and request.complete and not self._stopping()
            answer.send(body)
        except OSError:
            return False
        except Exception:  # noqa: BLE001 - whatever the application raises, it was told to the log
            self._terms.failed("An answer failed")
            if not answer.begun:
                self._refuse(BadRequest(500, "The gateway failed to answer this request"))
            return False
        finally:
            if close := getattr(body, "close", None):
                close()
        self._reader.requests.popleft()
        if not request.complete:
            self._say_farewell()
        return answer.keep_alive and request.complete and not self._stopping()

    def _scheme(self, environ: dict[str, Any]) -> str:
        if self._trusted:
            for name, value in self._terms.scheme_headers.items():
                if environ.get(name, "").lower() == value:
                    return "https"
        return "http"

    def _send(self, data: bytes) -> None:
        self._sock.settimeout(SEND_PATIENCE)
        # Nearly always all of it goes at once, and gevent's `sendall` asks for the buffer's size first.
        sent = self._sock.send(data)
        if sent < len(data):
            self._sock.sendall(data[sent:])

    def _refuse(self, error: BadRequest) -> None:
        """Answer what cannot be served, and be done with the connection."""
        words = json.dumps({"error": True, "status": error.status, "message": error.message}).encode()
        answer = Answer(self._send, method="GET", protocol="HTTP/1.1", keep_alive=False)
        answer.start(f"{error.status} {HTTPStatus(error.status).phrase}", [("Content-Type", "application/json")])
        with suppress(OSError):
            answer.send([words])
            self._say_farewell()

    def _say_farewell(self) -> None:
        """Let the client read its answer: closing on what it still sends would take the answer from it."""
        with suppress(OSError), gevent.Timeout(FAREWELL, TooSlow()):
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(READ_SIZE):
                pass


class Body:
    """A request's body that is still arriving (WSGI's `wsgi.input`)."""

    def __init__(self, connection: Connection, sock: socket.socket, request: Incoming) -> None:
        self._connection = connection
        self._sock = sock
        self._request = request
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, or all; fewer only at the end. Raises OSError when they do not come."""
        if size is None or size < 0:
            size = sys.maxsize
        parts = []
        while size > 0 and (piece := self._left or self._piece()):
            part, self._left = piece[:size], piece[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def readline(self, size: int = -1) -> bytes:
        """Return a line with its end, or so many bytes of it."""
        line = b""
        while (piece := self._left or self._piece()) and (size < 0 or len(line) < size):
            end = piece.find(b"\n") + 1 or len(piece)
            if size >= 0:
                end = min(end, size - len(line))
            line, self._left = line + piece[:end], piece[end:]
            if line.endswith(b"\n"):
                break
        return line

    def readlines(self, _hint: int = -1) -> list[bytes]:
        """Return the lines."""
        return list(self)

    def __iter__(self) -> Any:
        """Yield the lines."""
        return iter(self.readline, b"")

    def _piece(self) -> bytes:
        """Return what has come, waiting for it if need be; nothing at the end."""
        request = self._request
        while not request.body:
            if request.complete:
                return b""
            if request.expects and not request.received:
                request.expects = False
                self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._sock.settimeout(BODY_PATIENCE)
            try:
                if not self._connection.receive():
                    raise ConnectionResetError("The client closed the connection before its request was complete")
            except BadRequest as error:
                request.keep_alive = False
                raise ConnectionResetError(error.message) from error
        return _taken(request)


def _taken(request: Incoming) -> bytes:
    """Return what has come of the body, and forget it."""
    body = request.body.popleft() if len(request.body) == 1 else b"".join(request.body)
    request.body.clear()
    return body
