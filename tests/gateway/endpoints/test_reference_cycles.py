"""Objects of a request are freed when it ends: no process has to look for cycles, which would hold up the next."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable

import gevent
import pytest

from gateway_project.http.connection import ClientConnection, ConnectionSettings
from gateway_project.http.connection_table import ConnectionTable, Idle
from tests.support import model_routes
from tests.support.connections import settings
from tests.support.upstream import Caller

pytestmark = pytest.mark.django_db(transaction=True)
REQUESTS = 50


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


def _is_answered(table: ConnectionTable, terms: ConnectionSettings) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        theirs.shutdown(socket.SHUT_WR)
        ClientConnection(terms, ours, "", lambda: False).serve(Idle(table), lambda: None)
        assert theirs.recv(1_000).endswith(b"\r\n\r\nok")


def _has_to_go(table: ConnectionTable, terms: ConnectionSettings) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        serving = gevent.spawn(lambda: ClientConnection(terms, ours, "", lambda: False).serve(Idle(table), int))
        gevent.sleep(0)
        [idle] = table.fresh
        idle.end()
        serving.get(timeout=5)


@pytest.mark.parametrize("happens", [_is_answered, _has_to_go])
def test_a_connection_leaves_no_cycles(happens: Callable[[ConnectionTable, ConnectionSettings], None]) -> None:
    table, terms = ConnectionTable(9, 9, 9.0, 9.0), settings()
    happens(table, terms)
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            happens(table, terms)
        assert gc.collect() < REQUESTS
    finally:
        gc.enable()
