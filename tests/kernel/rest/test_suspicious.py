"""Requests that the framework's checks refuse: each is answered and counted, and none writes a traceback or a flood."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from apps.kernel.rest import errors
from apps.kernel.rest.errors import SUSPICIOUS

FORM = "application/x-www-form-urlencoded"
MANY = "&".join(f"a{number}=1" for number in range(3_000))
FILES = b"".join(
    b'--x\r\nContent-Disposition: form-data; name="f%d"; filename="a"\r\n\r\nz\r\n' % number for number in range(200)
)
TOKEN = "a" * 32
CASES: dict[str, tuple[dict[str, Any], int, str]] = {
    "a foreign host": ({"path": "/docs/api", "headers": {"host": "evil.example"}}, 400, "DisallowedHost"),
    "a host that is none": ({"path": "/docs/api", "headers": {"host": "a b"}}, 400, "DisallowedHost"),
    "a foreign host, admin": ({"path": "/admin/login/", "headers": {"host": "evil.example"}}, 400, "DisallowedHost"),
    "a foreign host, console": ({"path": "/app/", "headers": {"host": "evil.example"}}, 400, "DisallowedHost"),
    "another encoding": (
        {"method": "POST", "path": "/oauth/token", "data": "a=b", "content_type": f"{FORM}; charset=utf-16"},
        400,
        "BadRequest",
    ),
    "an encoding that is no text": (
        {"method": "POST", "path": "/oauth/revoke", "data": "a=b", "content_type": f"{FORM}; charset=base64"},
        400,
        "BadRequest",
    ),
    "many fields, console": (
        {"method": "POST", "path": "/app/sign-in", "data": MANY, "content_type": FORM},
        400,
        "TooManyFieldsSent",
    ),
    "many fields, admin": (
        {"method": "POST", "path": "/admin/login/", "data": MANY, "content_type": FORM},
        400,
        "TooManyFieldsSent",
    ),
    "many fields, a program": (
        {"method": "POST", "path": "/oauth/token", "data": MANY, "content_type": FORM},
        400,
        "TooManyFieldsSent",
    ),
    "many files": (
        {
            "method": "POST",
            "path": "/app/sign-in",
            "data": FILES + b"--x--\r\n",
            "content_type": "multipart/form-data; boundary=x",
        },
        400,
        "TooManyFilesSent",
    ),
    "a form of parts without a boundary": (
        {"method": "POST", "path": "/admin/login/", "data": b"x", "content_type": "multipart/form-data"},
        400,
        "MultiPartParserError",
    ),
    "a form from elsewhere": (
        {
            "method": "POST",
            "path": "/app/sign-in",
            "data": "a=b",
            "content_type": FORM,
            "headers": {"origin": "http://[a"},
        },
        403,
        "ForgedForm",
    ),
}


@pytest.fixture(autouse=True)
def _told_nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_told_at", {})
    monkeypatch.setattr(errors, "_untold", type(errors._untold)())


def ask(request: dict[str, Any]) -> Any:
    """Send a request as a browser that holds a token against forgery, for what lies behind that check."""
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    client.cookies["csrftoken"] = TOKEN
    headers = {"x-csrftoken": TOKEN, **request.get("headers", {})}
    return client.generic(**{"method": "GET", **request, "headers": headers})


def counted(kind: str) -> float:
    """Return how many of a kind were counted."""
    return float(SUSPICIOUS.labels(kind)._value.get())


@pytest.mark.parametrize("name", CASES)
def test_it_is_answered_and_counted_in_one_quiet_line(db: None, name: str, caplog: pytest.LogCaptureFixture) -> None:
    request, status, kind = CASES[name]
    before = counted(kind)
    with caplog.at_level(logging.INFO):
        statuses = {ask(request).status_code for _ in range(5)}
    assert (statuses, counted(kind) - before) == ({status}, 5)
    lines = [record for record in caplog.records if record.name != "httpx"]
    assert [(one.levelname, one.exc_info) for one in lines] == [("INFO", None)]
    assert isinstance(lines[0].msg, dict)
    assert (lines[0].msg["event"], lines[0].msg["kind"], lines[0].msg["count"]) == ("request.suspicious", kind, 1)


def test_what_was_not_told_is_told_with_the_next_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter((100.0, 100.2, 100.9, 101.0, 101.5))
    monkeypatch.setattr(errors, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            errors.count_suspicious("DisallowedHost", said="x")
    assert [record.msg["count"] for record in caplog.records if isinstance(record.msg, dict)] == [1, 3]
