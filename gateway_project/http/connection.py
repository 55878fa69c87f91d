"""Client connection (HTTP/1.1 keep-alive): read, serve, answer, and wait for the next request."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import gevent

from apps.kernel.concurrency.green_socket import GatheringSender, watch_readable
from apps.kernel.concurrency.turn_queue import let_others_go_on
from apps.kernel.errors import ApiError, InternalError, Overloaded
from gateway_project.http.connection_table import Idle
from gateway_project.http.request_intake import RequestIntake
from gateway_project.http.request_parser import BadRequest, HeadLimits, Http2Preface, IncomingRequest, RequestParser
from gateway_project.http.response_writer import (
    HTTP_1_1_REQUIRED,
    MalformedRequest,
    ResponseWriter,
    refusal,
    shed_answer,
)

READ_SIZE = 65_536
# Seconds: for a head once it has begun, for the client to take a piece of an answer, and for what it still sends after
# an answer that did not wait for it. The limits of bodies are in `request_intake`.
HEAD_TIMEOUT, SEND_TIMEOUT, DRAIN_TIMEOUT = 20.0, 120.0, 2.0
# Bytes that are parsed in one go when more than so many requests may be in them, which their versions count.
_PIECE, _MANY, _VERSION = 4_096, 8, b" HTTP/1."


class TooSlow(TimeoutError):
    """A client that did not send, or take, anything for too long."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of all connections of a listener: the application, limits, and the base of every environment.

    `scheme_headers` are the WSGI names and values by which a proxy that `trusts` knows by its address tells that the
    client came over TLS; `intake` admits requests; `on_refused` is called for an invalid request, `on_aborted`
    for clients that left in the middle of one, and `on_failure` where the application raised something.
    """

    application: Callable[..., Iterable[bytes]]
    limits: HeadLimits
    environ: dict[str, Any]
    trusts: Callable[[str], bool]
    scheme_headers: dict[str, str]
    on_failure: Callable[[str], object]
    intake: RequestIntake
    on_refused: Callable[[str], object]
    on_aborted: Callable[[], object]


class ClientConnection:
    """A client's connection."""

    def __init__(
        self, settings: ConnectionSettings, sock: socket.socket, address: Any, stopping: Callable[[], bool]
    ) -> None:
        self._settings = settings
        self._sock = sock
        self._sender = GatheringSender(sock, SEND_TIMEOUT)
        self._reader = RequestParser(settings.limits)
        self._readable = watch_readable(sock)
        self._stopping = stopping
        # Bytes that wait to be parsed, and the wait that lets other connections run.
        self._unread = b""
        self._step_aside: Callable[[], None] = let_others_go_on
        host, port = address[:2] if isinstance(address, tuple) else ("", "")
        self._peer = host
        self._environ = {
            **settings.environ,
            "REMOTE_PORT": str(port),
            "gunicorn.socket": sock,
        }
        self._trusted = settings.trusts(host)

    def serve(self, idle: Idle, on_served: Callable[[], object]) -> None:
        """Serve until the client leaves, is idle too long, or the worker stops. `idle` is what it waits in."""
        with suppress(OSError):
            if self._sock.family in {socket.AF_INET, socket.AF_INET6}:
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._step_aside = idle.step_aside
            try:
                while (request := self._next_request(idle, on_served)) is not None:
                    on_served()
                    if not self._answer(request):
                        return
            except BadRequest as error:
                self._refuse_malformed(error)
            finally:
                self._sender.close()
                self._reader.close()
                self._readable.close()

    def _next_request(self, idle: Idle, on_served: Callable[[], object]) -> IncomingRequest | None:
        """Return the next request once its head is there, None when there will be none. Raises BadRequest."""
        requests = self._reader.requests
        while requests or self._unread:
            # It was sent behind the one before (pipelining): others have their turn first.
            idle.step_aside()
            if requests and requests[0].head_done:
                return requests[0]
            if not self._unread:
                break
            self._feed(self._unread)
        with idle:
            if not requests:
                while self._shed(data := self._receive_first(idle)):
                    on_served()
                    idle.wait_anew()
                if not data:
                    return None
                self._feed(data)
                if requests and requests[0].head_done:
                    return requests[0]
            idle.begun = True
            with gevent.Timeout(HEAD_TIMEOUT, BadRequest(408, "The request's headers did not arrive in time")):
                while not requests or not requests[0].head_done:
                    if not self.receive():
                        return None
            return requests[0]
        return None

    def _receive_first(self, idle: Idle) -> bytes:
        """Return what comes first of a request, nothing at the end."""
        # To wait first: the next request is rarely there already, and to try in vain costs more.
        idle.wait_for(self._readable)
        return self._sock.recv(READ_SIZE)

    def _shed(self, data: bytes) -> bool:
        """Answer a request that is shed, if its first bytes show that it is; return whether they did."""
        answer = None if self._stopping() else self._settings.intake.shed(self._peer, data, self._settings.limits)
        if answer is None:
            return False
        self._sender.send(answer)
        return True

    def receive(self, patience: float | None = None) -> bool:
        """Take in what arrives next within so many seconds; False at the end. Raises BadRequest, OSError."""
        # Reading never waits while bytes are there: a fast sender would have the worker for itself.
        self._step_aside()
        data = self._unread
        if not data:
            self._sock.settimeout(patience)
            data = self._sock.recv(READ_SIZE)
        if data:
            self._feed(data)
        return bool(data)

    def _feed(self, data: bytes) -> None:
        """Parse what has arrived, a piece of it where that may be many requests. Raises BadRequest."""
        self._unread = b""
        if len(data) > _PIECE and not self._reader.is_in_body(len(data)) and data.count(_VERSION) > _MANY:
            data, self._unread = data[:_PIECE], data[_PIECE:]
        self._reader.feed(data)

    def go_on(self) -> None:
        """Tell a client that waits for it to send its body."""
        request = self._reader.requests[0]
        if request.expects and not request.received and not request.complete:
            request.expects = False
            self._sender.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def has_left(self) -> bool:
        """Tell whether the client has closed the connection."""
        self._sock.settimeout(0.0)
        try:
            return self._sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _answer(self, request: IncomingRequest) -> bool:
        """Answer a request; return whether another may follow."""
        environ = request.environ
        environ["REMOTE_ADDR"] = self._peer
        try:
            leave = self._settings.intake.enter(self, request)
        except ApiError as error:
            return self._refuse(request, error)
        except OSError:
            self._settings.on_aborted()
            return False
        # Not before: who is shed in a flood pays for nothing that only the application needs.
        environ.update(self._environ)
        environ["wsgi.url_scheme"] = self._scheme(environ)
        answer: ResponseWriter | None = None
        body: Iterable[bytes] = ()
        try:
            if request.complete:
                environ["wsgi.input"] = BytesIO(_take_body(request))
            answer = ResponseWriter(
                self._sender,
                method=environ["REQUEST_METHOD"],
                protocol=environ["SERVER_PROTOCOL"],
                keep_alive=request.keep_alive and not self._stopping(),
            )
            body = self._settings.application(environ, answer.start)
            # The unread rest of a body would be taken for the next request.
            answer.keep_alive = request.keep_alive and request.complete and not self._stopping()
            answer.send(body)
        except OSError:
            return False
        except Exception:  # noqa: BLE001 - any error of the application is logged already
            self._settings.on_failure("An answer failed")
            if answer is not None and not answer.begun:
                request.keep_alive = False
                self._refuse(request, InternalError("The gateway failed to answer this request"))
            return False
        finally:
            leave()
            if close := getattr(body, "close", None):
                close()
        if not request.complete:
            self._drain_and_close()
            return False
        self._reader.requests.popleft()
        return answer.keep_alive and not self._stopping()

    def _scheme(self, environ: dict[str, Any]) -> str:
        if self._trusted:
            for name, value in self._settings.scheme_headers.items():
                if environ.get(name, "").lower() == value:
                    return "https"
        return "http"

    def _refuse(self, request: IncomingRequest | None, error: ApiError) -> bool:
        """Answer a rejected request; return whether another may follow, which needs all of this one's body."""
        environ = {} if request is None else request.environ
        keep = request is not None and request.keep_alive and request.complete and not self._stopping()
        try:
            if type(error) is Overloaded and keep:
                self._sender.send(
                    shed_answer(
                        environ["PATH_INFO"],
                        error.message,
                        error.retry_after,
                        sent_id=environ.get("HTTP_X_REQUEST_ID"),
                        head_only=environ["REQUEST_METHOD"] == "HEAD",
                        kept=b"" if environ["SERVER_PROTOCOL"] == "HTTP/1.1" else b"Connection: keep-alive\r\n",
                    )
                )
            else:
                status, headers, words = refusal(environ, error)
                method, protocol = environ.get("REQUEST_METHOD", "GET"), environ.get("SERVER_PROTOCOL", "HTTP/1.1")
                answer = ResponseWriter(self._sender, method=method, protocol=protocol, keep_alive=keep)
                answer.start(status, headers)
                answer.send([words])
        except OSError:
            return False
        if request is None or not request.complete:
            self._drain_and_close()
            return False
        self._reader.requests.popleft()
        return keep

    def _refuse_malformed(self, error: BadRequest) -> None:
        """Answer what cannot be read, and be done with the connection."""
        if isinstance(error, Http2Preface):
            self._settings.on_refused("malformed")
            with suppress(OSError):
                self._sender.send(HTTP_1_1_REQUIRED)
            self._drain_and_close()
            return
        request = self._reader.requests[-1] if self._reader.requests else None
        if request is not None:
            # Nothing after it will be read.
            request.complete = False
        self._settings.on_refused("malformed")
        readable = request is not None and request.head_done
        self._refuse(request if readable else None, MalformedRequest(error.message, status=error.status))

    def _drain_and_close(self) -> None:
        """Let the client read its answer: closing on what it still sends would take the answer from it."""
        with suppress(OSError), gevent.Timeout(DRAIN_TIMEOUT, TooSlow()):
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(READ_SIZE):
                self._step_aside()


def _take_body(request: IncomingRequest) -> bytes:
    """Return what has come of the body, and forget it."""
    body = request.body.popleft() if len(request.body) == 1 else b"".join(request.body)
    request.body.clear()
    return body
