"""Clients' bytes: a request is the same however its bytes are cut, is read as others read it, and stays within bounds.

`http_reader` feeds the reader; `http_connection` a whole connection, over a socket, with an application behind it.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import h11

from gateway_project.http.admission_control import AdmissionControl
from gateway_project.http.connection import ClientConnection, ConnectionSettings
from gateway_project.http.connection_table import ConnectionTable, Idle
from gateway_project.http.limits import ClientLimits
from gateway_project.http.request_intake import RequestIntake, path_of_plain
from gateway_project.http.request_parser import MAX_HEAD_BYTES, BadRequest, HeadLimits, IncomingRequest, RequestParser
from tests.fuzz.target import Target, pieces_of

LIMITS = HeadLimits(line=8190, headers=100, header=16_384)
_HOST = b"Host: gateway\r\n"
SEEDS = [
    b"GET / HTTP/1.1\r\n" + _HOST + b"\r\n",
    b"HEAD /a%20b?c=%20d#e HTTP/1.1\r\n" + _HOST + b"X-Two: 2\r\nX-Two: 3\r\nX_Three: 4\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\n" + _HOST + b"Content-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: b\r\n\r\n",
    b"POST / HTTP/1.1\r\n" + _HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    b"GET http://elsewhere/a?b HTTP/1.1\r\n" + _HOST + b"\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + _HOST + b"\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /again HTTP/1.0\r\n\r\n",
    b"GET /1 HTTP/1.1\r\n" + _HOST + b"\r\nPOST /2 HTTP/1.1\r\n" + _HOST + b"Content-Length: 1\r\n\r\n2",
    b"GET / HTTP/1.1\r\n" + _HOST + b"Connection: close\r\n\r\n",
]


@dataclass
class Read:
    """The result of reading: requests up to the last that is served, and the status that ended the connection."""

    requests: list[tuple[Any, ...]]
    status: int | None


def read(pieces: Iterable[bytes]) -> Read:
    """Feed a reader as a connection does: nothing more behind a request that ends it."""
    reader = RequestParser(LIMITS)
    heads: dict[int, tuple[IncomingRequest, dict[str, Any]]] = {}
    status = None
    try:
        for piece in pieces:
            reader.feed(piece)
            for request in reader.requests:
                if request.head_done:
                    heads.setdefault(id(request), (request, dict(request.environ)))
            if any(request.complete and not request.keep_alive for request in reader.requests):
                break
    except BadRequest as error:
        status = error.status
        assert 400 <= status <= 599, status
    finally:
        reader.close()
    for request, environ in heads.values():
        assert request.environ == environ, "what came behind the head changed the request's environment"
    found = []
    for request in reader.requests:
        _within_bounds(request)
        if request.complete:
            body = b"".join(request.body)
            assert request.received == len(body)
            found.append((sorted(request.environ.items()), body, request.keep_alive))
            if not request.keep_alive:
                break
    return Read(found, status)


def _within_bounds(request: IncomingRequest) -> None:
    assert len(request.url) <= LIMITS.line
    headers = [(name, value) for name, value in request.environ.items() if name.startswith("HTTP_")]
    assert len(headers) <= LIMITS.headers
    size = sum(len(str(name)) + len(str(value)) for name, value in headers)
    assert size <= MAX_HEAD_BYTES + 10 * LIMITS.headers, size
    assert all(isinstance(value, str) for _, value in headers)


def run_reader(data: bytes) -> None:
    """Read an input whole, in small pieces and in larger ones, and compare with another reader's opinion."""
    whole = read([data[at : at + 65_536] for at in range(0, len(data), 65_536)])
    for salt in (0, 1):
        cut = read(pieces_of(data, salt))
        # A reader that has bytes behind its last request sees sooner that they are none.
        assert _same_start(whole.requests, cut.requests), (whole, cut)
        if not any(not keep_alive for *_, keep_alive in cut.requests + whole.requests):
            # With two reasons to refuse, the first to be met counts; both ways of reading refuse or both accept.
            assert (whole.requests, whole.status is None) == (cut.requests, cut.status is None)
    _compare_with_h11(data, whole)
    if (path := path_of_plain(data, LIMITS)) is not None:
        [(environ, body, keep_alive)] = whole.requests
        assert (dict(environ)["PATH_INFO"], keep_alive, whole.status) == (path, True, None)
        assert data.endswith(b"\r\n\r\n" + body)


def _same_start(one: list[Any], other: list[Any]) -> bool:
    return all(left == right for left, right in zip(one, other, strict=False))


def _compare_with_h11(data: bytes, mine: Read) -> None:
    """Where both readers take a request, they take the same bytes for its body, and the next one for the next."""
    for theirs, (environ, body, _) in zip(_by_h11(data), mine.requests, strict=False):
        method, content = theirs
        assert (method, content) == (dict(environ)["REQUEST_METHOD"], body), (theirs, environ, body)


def _by_h11(data: bytes) -> Iterator[tuple[str, bytes]]:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    connection.receive_data(data)
    method, body = "", b""
    with contextlib.suppress(h11.RemoteProtocolError):
        while True:
            event = connection.next_event()
            match event:
                case h11.Request():
                    method, body = event.method.decode("latin-1"), b""
                case h11.Data():
                    body += event.data
                case h11.EndOfMessage():
                    yield method, body
                    # Its side of the answer, so that it goes on to the next.
                    connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    connection.send(h11.EndOfMessage())
                    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                        return
                    connection.start_next_cycle()
                case _:
                    return


def _application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Read the body, in the way that the path says, and answer it."""
    body = environ["wsgi.input"]
    try:
        match len(environ["PATH_INFO"]) % 4:
            case 0:
                said = body.read()
            case 1:
                said = b"".join(iter(lambda: body.read(3), b""))
            case 2:
                said = b"".join(body.readlines())
            case _:
                said = b""
    except OSError:
        start_response("499 Gone", [("Content-Length", "0")])
        return [b""]
    start_response("200 OK", [("Content-Length", str(len(said)))])
    return [said]


def _nobody(host: str) -> bool:
    return False


def _ignored(*_: object) -> None:
    """A worker's counters do not matter here."""


def run_connection(data: bytes) -> None:
    """Serve an input as a connection; every answer is one, and nothing but an answer comes out."""
    failures: list[str] = []
    # Its clock stands still, so that no turn of the loop lasts too long: a request that had to wait for the next one
    # would wait for ever, as nothing runs the loop here.
    admission = AdmissionControl(100, 2.0, clock=lambda: 0.0)
    settings = ConnectionSettings(
        application=_application,
        limits=LIMITS,
        environ={},
        trusts=_nobody,
        scheme_headers={},
        on_failure=failures.append,
        intake=RequestIntake(ClientLimits.of_environment(), admission, _nobody, _ignored),
        on_refused=_ignored,
        on_aborted=_ignored,
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[:40_000])
        theirs.shutdown(socket.SHUT_WR)
        ClientConnection(settings, ours, "", lambda: False).serve(Idle(ConnectionTable(9, 9, 9.0, 9.0)), lambda: None)
        ours.close()
        said = b"".join(iter(lambda: theirs.recv(65_536), b""))
    assert failures == []
    while said:
        head, end, rest = said.partition(b"\r\n\r\n")
        assert end
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert status, head[:80]
        if status[1] == b"100":
            said = rest
            continue
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        assert length, head
        # An answer to HEAD has a length and no body: it is followed by an answer or by the end.
        body = int(length[1])
        said = rest if rest[:9] == b"HTTP/1.1 " and b"HEAD" in data else rest[body:]
        if b"Connection: close" in head:
            break


TARGETS = [
    Target("http_reader", run_reader, lambda: SEEDS),
    Target("http_connection", run_connection, lambda: SEEDS),
]
