"""Refusals of paths and methods of the model APIs: they say what Django's would, and Django has no part in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.signals import request_started
from django.test import Client

from tests.support.model_routes import Answer, call

NO_PATH, NO_METHOD = "There is nothing at this path", "This path does not take this method"
ANTHROPIC, GOOGLE = {"anthropic-version": "2023-06-01"}, {"x-goog-api-key": "x"}


@pytest.fixture
def served_by_django() -> Iterator[list[str]]:
    """The paths of the requests that Django has begun."""
    paths: list[str] = []

    def note(sender: Any, environ: dict[str, Any], **_: Any) -> None:
        paths.append(environ["PATH_INFO"])

    request_started.connect(note)
    yield paths
    request_started.disconnect(note)


def ask(method: str, path: str, headers: dict[str, str]) -> Answer:
    """Ask as a server does."""
    sent = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    return call(path, b"{}", {"REQUEST_METHOD": method, "CONTENT_TYPE": "application/json", **sent})


@pytest.mark.parametrize("headers", [{}, ANTHROPIC, GOOGLE], ids=["openai", "anthropic", "google"])
@pytest.mark.parametrize(
    ("method", "path", "status", "message", "allowed"),
    [
        ("POST", "/v1/chat/completion", 404, f"{NO_PATH}; did you mean `/v1/chat/completions`?", None),
        ("GET", "/v1/threads", 404, NO_PATH, None),
        ("GET", "/v1beta/cachedContents", 404, NO_PATH, None),
        ("GET", "/v1/chat/completions", 405, NO_METHOD, "POST"),
        ("GET", "/v1/messages", 405, NO_METHOD, "POST"),
        ("PUT", "/v1/responses/resp_1", 405, NO_METHOD, "GET, DELETE, HEAD"),
        ("PATCH", "/v1/files", 405, NO_METHOD, "POST, GET, HEAD"),
    ],
)
def test_a_refusal_says_what_django_says_and_costs_nothing_of_it(
    db: None,
    served_by_django: list[str],
    method: str,
    path: str,
    status: int,
    message: str,
    allowed: str | None,
    headers: dict[str, str],
) -> None:
    sent = {"x-request-id": "trace-7", **headers}
    answer = ask(method, path, sent)
    assert served_by_django == []
    told = answer.json()
    assert (answer.status, told.get("message") or told["error"]["message"]) == (status, message)
    by_django = Client().generic(method, path, b"{}", content_type="application/json", headers=sent)
    assert (by_django.status_code, by_django.json()) == (status, told)
    assert answer.headers.get("allow") == by_django.get("Allow") == allowed
    assert answer.headers["x-request-id"] == by_django["x-request-id"] == "trace-7"
    assert answer.headers["content-length"] == str(len(answer.content))
    for name in ("Content-Type", "Cache-Control", "X-Content-Type-Options"):
        assert answer.headers[name.lower()] == by_django[name]
    if headers is ANTHROPIC and path.startswith("/v1/"):
        assert answer.headers["request-id"] == by_django["request-id"] == "trace-7"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/key", 401), ("HEAD", "/v1/files", 401), ("GET", "/nowhere", 404), ("GET", "/v1/auth/keys", 405)],
)
def test_django_answers_for_its_own_paths_and_for_heads(
    db: None, served_by_django: list[str], method: str, path: str, status: int
) -> None:
    answer = ask(method, path, {"host": "testserver"})
    assert (answer.status, served_by_django) == (status, [path])
