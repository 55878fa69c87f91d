"""A request is never sent twice in silence: each call of a provider is an attempt, in `routing` and in the log."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apps.catalog.models import Provider
from apps.gateway.access import policy
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.upstream import connection_pool
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.attempt_lines import without_times
from tests.support.model_routes import post
from tests.support.upstream import Caller, settle_all

REPLY = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"echo","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}'
)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(REPLY), REPLY)
Read = Callable[[socket.socket], None]
Talk = Callable[[socket.socket, Read], None]


@contextmanager
def provider(*talks: Talk) -> Iterator[tuple[str, list[bytes]]]:
    """Let each connection go as its talk says; yield the address and the requests that were read."""
    asked: list[bytes] = []

    def read(connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
            if not (piece := connection.recv(65_536)):
                return
            data += piece
        asked.append(data)

    def serve() -> None:
        for talk in talks:
            with listener.accept()[0] as connection:
                connection.settimeout(30)
                talk(connection, read)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        connection_pool.close_idle()
        thread.join(10)


def _length(data: bytes) -> int:
    return int(data.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


def answers(connection: socket.socket, read: Read) -> None:
    """Answer one request."""
    read(connection)
    connection.sendall(OK)


def answers_and_dies_at_once(connection: socket.socket, read: Read) -> None:
    """Answer one request and hang up as soon as there is another."""
    answers(connection, read)
    read(connection)


def answers_and_thinks_before_it_dies(connection: socket.socket, read: Read) -> None:
    """Answer one request, read another, and hang up much later without a word."""
    answers_and_dies_at_once(connection, read)
    time.sleep(0.6)


@pytest.fixture
def told(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Caller]:
    """Return what sends the caller's requests to a provider of our own; its log keeps how they were routed."""
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="metadata")
    policy.forget_all()

    def at(url: str) -> Caller:
        monkeypatch.setenv("SANDBOX_BASE_URL", url)
        Provider.objects.filter(pk="sandbox").update(base_url=url)
        generation.bump(generation.CATALOG)
        return caller

    return at


def attempt(error_type: str, status: int | None, *, succeeded: bool, name: str = "sandbox") -> dict[str, Any]:
    return {
        "provider": name,
        "model": "echo",
        "status_code": status,
        "error_type": error_type,
        "succeeded": succeeded,
    }


def test_a_connection_that_had_been_closed_is_an_attempt_and_then_another(told: Callable[[str], Caller]) -> None:
    with provider(answers_and_dies_at_once, answers) as (url, asked):
        caller = told(url)
        assert post(caller, "chat").status == 200
        answer = post(caller, "chat")
        assert answer.status == 200
        assert len(asked) == 3
    expected = [attempt("network", None, succeeded=False), attempt("none", 200, succeeded=True)]
    assert answer.json()["metadata"]["routing"] == expected
    settle_all()
    row = RequestLog.objects.order_by("id").last()
    assert row is not None
    assert without_times(row.routing_metadata["routing"]) == expected
    # A closed connection is no fault of the provider, and does not lower its uptime.
    assert CIRCUIT_BREAKERS.stats("sandbox/echo").uptime == 100


def test_a_request_that_was_read_and_dropped_is_not_sent_to_the_same_provider_again(
    told: Callable[[str], Caller],
) -> None:
    with provider(answers_and_thinks_before_it_dies) as (url, asked):
        caller = told(url)
        assert post(caller, "chat").status == 200
        answer = post(caller, "chat")
        assert (answer.status, answer.json()["error"]["code"]) == (502, "all_providers_failed")
        assert len(asked) == 2
    settle_all()
    row = RequestLog.objects.order_by("id").last()
    assert row is not None
    assert without_times(row.routing_metadata["routing"]) == [attempt("network", None, succeeded=False)]
    assert row.cost == 0


def test_one_that_was_read_and_dropped_goes_to_another_provider(
    told: Callable[[str], Caller], backup: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with provider(answers_and_thinks_before_it_dies) as (url, asked), provider(answers) as (other, _):
        caller = told(url)
        monkeypatch.setenv("BACKUP_BASE_URL", other)
        generation.bump(generation.CATALOG)
        assert post(caller, "chat", model="sandbox/echo").status == 200
        body = post(caller, "chat", model="echo").json()
        assert len(asked) == 2
    routing = body["metadata"]["routing"]
    assert [one["provider"] for one in routing] == ["sandbox", backup]
    assert [one["error_type"] for one in routing] == ["network", "none"]
