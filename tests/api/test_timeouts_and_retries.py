"""Time limits of providers, and the number of other attempts (section 8)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import Provider
from apps.gateway.access import credentials
from apps.gateway.upstream import failover
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from gateway_project.settings import (
    BODY_LIMIT,
    UPSTREAM_CONNECT_TIMEOUT,
    UPSTREAM_FIRST_BYTE_TIMEOUT,
    UPSTREAM_IDLE_TIMEOUT,
    UPSTREAM_TOTAL_TIMEOUT,
)
from tests.support.model_routes import ROUTES, Answer, error_of, post
from tests.support.sandbox_providers import Adding, add_provider
from tests.support.upstream import Caller, settle_all

__all__ = ["add_provider"]


def test_what_holds_unless_the_operator_says_otherwise() -> None:
    assert BODY_LIMIT == 32 * 1024 * 1024
    assert (UPSTREAM_CONNECT_TIMEOUT, UPSTREAM_FIRST_BYTE_TIMEOUT) == (5, 120)
    assert (UPSTREAM_IDLE_TIMEOUT, UPSTREAM_TOTAL_TIMEOUT) == (120, 900)


# --- timeouts


def assert_late(answer: Answer, route: str, what: str) -> None:
    message = f"sandbox did not answer in time: {what}"
    expected = error_of(route, 504, "timeout_error", "upstream_timeout", message)
    assert (answer.status, answer.json()) == (504, expected)


def assert_logged_as_late_and_free(caller: Caller, requests: int) -> None:
    assert settle_all() == requests
    rows = [(row.status_code, row.unified_finish_reason, row.cost) for row in RequestLog.objects.all()]
    assert rows == [(504, "upstream_error", 0)] * requests
    assert Organization.objects.get(pk=caller.organization_id).credits == 100


@pytest.fixture
def full_house(caller: Caller) -> Iterator[None]:
    """A server that accepts no connection, at the sandbox's address: connecting to it takes forever."""
    with socket.socket() as house:
        house.bind(("127.0.0.1", 0))
        house.listen(0)
        guests = [socket.socket() for _ in range(3)]
        for guest in guests:
            guest.setblocking(False)
            guest.connect_ex(house.getsockname())
        Provider.objects.filter(pk="sandbox").update(base_url=f"http://127.0.0.1:{house.getsockname()[1]}/v1")
        generation.bump(generation.CATALOG)
        yield
        for guest in guests:
            guest.close()


def test_to_connect(caller: Caller, full_house: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_BASE_URL")
    generation.bump(generation.CATALOG)
    settings.UPSTREAM_CONNECT_TIMEOUT = 0.2
    for route in ROUTES:
        assert_late(post(caller, route), route, "no connection within 0.2 s")
    assert_logged_as_late_and_free(caller, 4)


@pytest.mark.parametrize("stream", [False, True])
def test_to_the_first_byte(caller: Caller, settings: Any, stream: bool) -> None:
    settings.UPSTREAM_FIRST_BYTE_TIMEOUT = 0.2
    routes = ("chat", "messages") if stream else ROUTES
    fields = {"stream": True} if stream else {}
    for route in routes:
        assert post(caller, route, "hi [[sandbox latency=20]]", **fields).status == 200
        answer = post(caller, route, "hi [[sandbox latency=3000]]", **fields)
        assert_late(answer, route, "no first byte within 0.2 s")


def test_between_two_bytes(caller: Caller, settings: Any) -> None:
    settings.UPSTREAM_IDLE_TIMEOUT = 0.3
    for route in ROUTES:
        assert_late(post(caller, route, "hi [[sandbox hang=5]]"), route, "silent for 0.3 s")
    assert_logged_as_late_and_free(caller, 4)


def test_for_the_whole_answer(caller: Caller, settings: Any) -> None:
    settings.UPSTREAM_TOTAL_TIMEOUT = 0.4
    for route in ROUTES:
        answer = post(caller, route, "hi [[sandbox chunks=50 gap=60]]")
        assert_late(answer, route, "the whole answer took longer than 0.4 s")
    assert_logged_as_late_and_free(caller, 4)


@pytest.mark.parametrize(
    ("name", "script", "what"),
    [
        ("UPSTREAM_IDLE_TIMEOUT", "chunks=4 hang=3", "silent for 0.3 s"),
        ("UPSTREAM_TOTAL_TIMEOUT", "chunks=50 gap=60", "the whole answer took longer than 0.3 s"),
    ],
)
def test_a_stream_that_has_begun_ends_with_an_error_frame(
    caller: Caller, settings: Any, name: str, script: str, what: str
) -> None:
    setattr(settings, name, 0.3)
    message = f"sandbox did not answer in time: {what}"
    question = f"one two three four five six [[sandbox {script}]]"
    answer = post(caller, "chat", question, stream=True)
    frames = [line.removeprefix("data: ") for line in answer.content.decode().split("\n\n") if line.startswith("data")]
    assert answer.status == 200
    assert json.loads(frames[0])["choices"][0]["delta"]
    detail = {"message": message, "type": "timeout_error", "param": None, "code": "upstream_timeout"}
    assert json.loads(frames[-1])["error"] == detail
    assert frames.count("[DONE]") == 0
    answer = post(caller, "messages", question, stream=True)
    assert answer.content.startswith(b"event: message_start\n")
    last = answer.content.decode().strip().split("\n\n")[-1].split("\n")
    assert last[0] == "event: error"
    told = json.loads(last[1].removeprefix("data: "))
    assert (told["type"], told["error"]) == ("error", {"type": "timeout_error", "message": message})
    assert_logged_as_late_and_free(caller, 2)


# --- retries


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits before each retry, recorded without waiting."""
    waited: list[float] = []

    class Clock:
        sleep = staticmethod(waited.append)

    monkeypatch.setattr(failover, "gevent", Clock)
    return waited


def ask(caller: Caller, script: str, **fields: Any) -> tuple[Answer, int]:
    """Ask `echo`, of whomever; return the answer and how many were asked."""
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox tag={tag} {script}]]", **{"model": "echo", **fields})
    return answer, len(caller.sent(tag))


def five(add: Adding) -> None:
    """Five providers of `echo`, the sandbox first by price."""
    for number, name in enumerate(("second", "third", "fourth", "fifth")):
        add(name, str(1 + number))


def test_at_most_three_retries_each_at_another_provider(
    caller: Caller, add_provider: Adding, pauses: list[float]
) -> None:
    five(add_provider)
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="metadata")
    answer, asked = ask(caller, "status=503")
    assert (answer.status, asked, len(pauses)) == (503, 4, 3)
    assert answer.json()["error"]["code"] == "overloaded"
    settle_all()
    tried = RequestLog.objects.get().routing_metadata["routing"]
    assert [(one["provider"], one["status_code"], one["error_type"], one["succeeded"]) for one in tried] == [
        (name, 503, "upstream_error", False) for name in ("sandbox", "second", "third", "fourth")
    ]


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_the_first_that_answers_ends_it(
    caller: Caller, add_provider: Adding, pauses: list[float], failures: int
) -> None:
    five(add_provider)
    answer, asked = ask(caller, f"status=500 times={failures}")
    assert (answer.status, asked) == (200, failures + 1)
    tried = [(one["provider"], one["succeeded"]) for one in answer.json()["metadata"]["routing"]]
    names = ["sandbox", "second", "third", "fourth"]
    assert tried == [(name, number == failures) for number, name in enumerate(names[: failures + 1])]
    assert answer.json()["metadata"]["used_provider"] == names[failures]


def test_the_pauses_grow_and_are_drawn_by_lot(caller: Caller, add_provider: Adding, pauses: list[float]) -> None:
    five(add_provider)
    for _ in range(10):
        ask(caller, "status=500")
    for retry, most in enumerate((0.1, 0.2, 0.4)):
        drawn = pauses[retry::3]
        assert len(drawn) == 10
        assert all(0 <= pause <= most for pause in drawn)
        assert len(set(drawn)) > 5
    assert max(pauses[2::3]) > 0.1, "ten draws up to 0.4 that all stay below 0.1 happen once in a million"


@pytest.mark.parametrize(("asked", "waited"), [("1", 1.0), ("60", 2.0), ("0", 0.0)])
def test_a_providers_retry_after_is_waited_for_up_to_two_seconds(
    caller: Caller, add_provider: Adding, pauses: list[float], asked: str, waited: float
) -> None:
    add_provider("second")
    assert ask(caller, f"status=429 retry-after={asked} times=1")[0].status == 200
    assert pauses == [waited]


@pytest.mark.parametrize(
    ("script", "times"),
    [
        *((f"status={status}", 2) for status in (500, 502, 503, 504, 529, 429, 401, 402, 403, 404, 408)),
        *((script, 2) for script in ("cut=head", "reset=head", "cut=middle", "broken=middle", "error=body")),
        *((f"status={status}", 1) for status in (400, 409, 413, 422)),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_tried_again(
    caller: Caller, add_provider: Adding, pauses: list[float], script: str, times: int, stream: bool
) -> None:
    """Not what is the request's own fault; and of a stream nothing, once its first content is out."""
    add_provider("second")
    answer, asked = ask(caller, f"{script} times=1", stream=stream)
    begun = stream and script in {"cut=middle", "broken=middle"}
    assert asked == (1 if begun else times)
    assert answer.status == (200 if times == 2 else int(script.removeprefix("status=")))
    assert (b'"error"' in answer.content) == (begun or times == 1)


def test_without_fallback_nobody_else_is_asked(caller: Caller, add_provider: Adding, pauses: list[float]) -> None:
    five(add_provider)
    for value, expected in (("true", 1), ("TRUE", 1), ("false", 4), ("", 4)):
        credentials.reset_cooldowns()
        answer, asked = ask(caller, "status=503", headers={"x-no-fallback": value})
        assert (answer.status, asked) == (503, expected)


@pytest.mark.parametrize("stream", [False, True])
def test_the_log_has_the_times_of_each_attempt_and_the_answer_does_not(
    caller: Caller, add_provider: Adding, pauses: list[float], stream: bool
) -> None:
    five(add_provider)
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="metadata")
    answer, asked = ask(caller, "status=500 times=1", stream=stream)
    assert (answer.status, asked) == (200, 2)
    if not stream:
        known = {"provider", "model", "status_code", "error_type", "succeeded"}
        assert [set(one) for one in answer.json()["metadata"]["routing"]] == [known, known]
    settle_all()
    row = RequestLog.objects.get()
    failed, answered = row.routing_metadata["routing"]
    assert (failed["provider"], failed["used_model"], answered["provider"], answered["used_model"]) == (
        "sandbox",
        "echo",
        "second",
        "echo",
    )
    assert "first_content_ms" not in failed
    # The second provider is at the same address: the connection of the first is used again.
    assert "connect_start_ms" not in answered
    times = [
        *(failed[name] for name in ("start_ms", "connect_start_ms", "connect_end_ms", "end_ms")),
        *(answered[name] for name in ("start_ms", "first_byte_ms", "first_content_ms", "end_ms")),
    ]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= row.duration + 1
