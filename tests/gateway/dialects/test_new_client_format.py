"""A new client format is its own folder and a row of the route table: `plainchat`, written by the guide alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http.response import HttpResponseBase
from django.test import RequestFactory

from apps.gateway.dialects import chat, find_client_dialect, find_dialect
from apps.gateway.endpoints.answering import view_of
from apps.kernel.rest.routes import Route
from apps.logs.models import RequestLog
from tests.gateway.dialects.plainchat import ERRORS, plain_chat
from tests.support.upstream import Caller, settle_all

ROUTE = Route("v1/plain", plain_chat, ERRORS, "chat", "POST")


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the format's folder beside the others."""
    monkeypatch.setattr(chat, "__path__", [*chat.__path__, str(Path(__file__).parent)])
    find_client_dialect.cache_clear()
    yield
    find_client_dialect.cache_clear()


def ask(caller: Caller, body: dict[str, Any], token: str | None = None) -> HttpResponseBase:
    """Return the answer to a request."""
    key = f"Bearer {token or caller.token}"
    request = RequestFactory().post("/v1/plain", json.dumps(body), "application/json", headers={"Authorization": key})
    return view_of([ROUTE])(request)


def lines_of(answer: Any) -> list[Any]:
    return [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]


def test_the_format_is_found_by_its_name() -> None:
    assert find_client_dialect("plainchat") is not None
    assert find_dialect("plainchat") is None


def test_a_question_is_answered_billed_and_logged(caller: Caller) -> None:
    answer: Any = ask(caller, {"model": "sandbox/echo", "question": "hello", "length": 9})
    assert settle_all() == 1
    row = RequestLog.objects.get()
    told = {"answer": "You said: hello", "used": row.total_tokens}
    assert (answer.status_code, json.loads(answer.content)) == (200, told)
    assert (row.status_code, row.requested_model, row.route) == (200, "sandbox/echo", "plain_chat")
    assert row.cost > 0


def test_an_answer_is_streamed(caller: Caller) -> None:
    answer = ask(caller, {"model": "sandbox/echo", "question": "one two", "live": True})
    assert answer["Content-Type"] == "application/x-ndjson"
    *pieces, last = lines_of(answer)
    assert "".join(line["piece"] for line in pieces) == "You said: one two"
    settle_all()
    assert last == {"used": RequestLog.objects.get().total_tokens}


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({"model": "sandbox/echo"}, "question"),
        ({"model": "sandbox/echo", "question": "?", "length": 0}, "length"),
        ({"model": "no-such-model", "question": "?"}, "model"),
    ],
)
def test_a_refusal_names_the_field_in_the_formats_words(caller: Caller, body: dict[str, Any], at: str) -> None:
    answer: Any = ask(caller, body)
    refusal = json.loads(answer.content)
    assert (answer.status_code // 100, refusal["at"]) == (4, at)
    assert refusal.keys() == {"problem", "at"}


def test_a_limit_that_the_model_cannot_keep_is_told_under_the_formats_name(caller: Caller) -> None:
    answer: Any = ask(caller, {"model": "sandbox/echo", "question": "hello", "length": 900_000})
    assert answer.status_code == 200
    assert answer["x-gateway-loss"] == "length"


@pytest.mark.parametrize(("field", "value"), [("colour", "red"), ("transforms", ["middle-out"])])
def test_a_field_without_effect_is_told(caller: Caller, field: str, value: Any) -> None:
    answer: Any = ask(caller, {"model": "sandbox/echo", "question": "hello", field: value})
    assert answer.status_code == 200
    assert answer["x-gateway-loss"] == field


def test_a_wrong_key_is_refused_in_the_formats_words(caller: Caller) -> None:
    answer: Any = ask(caller, {"model": "sandbox/echo", "question": "hello"}, token="sk-wrong")
    assert answer.status_code == 401
    assert json.loads(answer.content).keys() == {"problem", "at"}
