"""What a request leaves behind is freed when it ends: nobody has to look for cycles, which would hold up the next."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from gateway_project.http.admission_control import AdmissionControl
from gateway_project.http.client_limits import ClientLimits
from gateway_project.http.connection import ClientConnection, ConnectionSettings
from gateway_project.http.request_intake import RequestIntake
from gateway_project.http.request_parser import HeadLimits
from tests.support import model_routes
from tests.support.upstream import Caller

pytestmark = pytest.mark.django_db(transaction=True)
REQUESTS = 20


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ["chat", "messages"])
def test_a_request_leaves_no_cycles(caller: Caller, route: str, stream: bool) -> None:
    for _ in range(3):
        assert model_routes.post(caller, route, stream=stream).status == 200
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            assert model_routes.post(caller, route, stream=stream).status == 200
        # Not one a request; what runs beside may leave some.
        assert gc.collect() < REQUESTS
    finally:
        gc.enable()


def test_a_connection_leaves_no_cycles() -> None:
    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    limits = HeadLimits(line=1_000, headers=10, header=1_000)

    def nothing(*_: object) -> bool:
        return False

    intake = RequestIntake(ClientLimits.of_environment(), AdmissionControl(100, 2.0), nothing, nothing)
    terms = ConnectionSettings(application, limits, {}, nothing, {}, nothing, intake, nothing, nothing)

    def serve() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            theirs.shutdown(socket.SHUT_WR)
            ClientConnection(terms, ours, "", lambda: False).serve(nullcontext(), lambda: None)
            return theirs.recv(1_000)

    assert serve().endswith(b"\r\n\r\nok")
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            serve()
        assert gc.collect() < REQUESTS
    finally:
        gc.enable()
