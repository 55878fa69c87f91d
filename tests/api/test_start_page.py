"""`GET /`: a page for browsers and the health check for programs; other paths of both kinds (section 4.6)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.test import Client

from apps.kernel.rest.request_headers import prefers_page
from gateway_project.wsgi import application
from tests.support.console_client import words
from tests.support.shipped_catalog import stock

pytestmark = pytest.mark.django_db

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.fixture(autouse=True)
def _catalog() -> None:
    stock()


def get(path: str, accept: str | None, method: str = "GET") -> tuple[str, dict[str, str], bytes]:
    """Ask the application itself, whose routes come before Django's."""
    told: dict[str, Any] = {}
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "HTTP_HOST": "localhost",
        "wsgi.input": io.BytesIO(),
        "wsgi.url_scheme": "http",
        "wsgi.errors": io.StringIO(),
    }
    if accept is not None:
        environ["HTTP_ACCEPT"] = accept

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        told.update(status=status, headers=dict(headers))

    body = b"".join(application(environ, start))
    return told["status"], told["headers"], body


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, text/html;q=0.5", "text/plain"])
def test_programs_get_the_health_check(accept: str | None) -> None:
    headers = {} if accept is None else {"accept": accept}
    answer = Client().get("/", headers=headers)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.content == (
        b'{"message": "OK", "version": "0.1.0", "health": {"status": "ok", "redis": {"connected": true}, '
        b'"database": {"connected": true}}}'
    )


def test_a_browser_gets_a_page_with_the_way_to_a_first_request() -> None:
    answer = Client().get("/", headers={"accept": BROWSER})
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    shown = answer.content.decode()
    for link in ("/app/sign-up", "/app/sign-in", "/models", "/docs/api"):
        assert f'href="{link}"' in shown
    assert "http://127.0.0.1:8000/v1/chat/completions" in shown
    assert "The base URL is http://127.0.0.1:8000/v1" in words(answer)
    # A query of the health check's still gets the health check.
    assert Client().get("/?skip=redis", headers={"accept": BROWSER}).headers["Content-Type"] == "application/json"


def test_at_models_a_browser_gets_a_page_and_a_program_the_listing() -> None:
    status, headers, body = get("/models", BROWSER)
    assert (status, headers["Content-Type"]) == ("200 OK", "text/html; charset=utf-8")
    for accept in (None, "*/*", "application/json"):
        status, headers, body = get("/models", accept)
        assert (status, headers["Content-Type"]) == ("200 OK", "application/json")
        assert json.loads(body)["object"] == "list"
    assert json.loads(get("/models/gpt-5", "*/*")[2])["id"] == "gpt-5"
    assert get("/models/gpt-5", BROWSER)[1]["Content-Type"] == "text/html; charset=utf-8"


def test_the_docs_and_the_icon_are_found() -> None:
    assert Client().get("/docs").headers["Location"] == "/docs/api"
    assert Client().get("/favicon.ico").headers["Location"] == "/static/console/icon.svg"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("TEXT/HTML;Q=0.9, application/json;q=0.8", False),
        ("text/html;q=0.9, application/json;q=0.8", True),
        ("application/json, text/html;q=0.9", False),
        ("text/html;q=0", False),
        ("text/html;q=x", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_page_is_preferred_where_it_is_named(accept: str, expected: bool) -> None:
    assert prefers_page(accept) is expected
