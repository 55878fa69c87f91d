"""Every answer's headers for browsers and caches: do not store, frame or sniff it, and run nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from django.test import Client

from apps.gateway.endpoints import answering
from apps.organizations.actions import create_operator
from gateway_project.wsgi import application
from tests.support.cast import PASSWORD, Caller, World, signed_in

DATA = "default-src 'none'; frame-ancestors 'none'"


def assert_kept_by_nobody(response: Any) -> None:
    assert "no-store" in response["Cache-Control"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == "same-origin"
    assert "camera=()" in response["Permissions-Policy"]
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    ["/", "/metrics", "/openapi.json", "/v1/models/echo", "/no-such-path", "/organization", "/logs", "/auth/sign-out"],
)
def test_data_are_not_kept_and_run_nothing(path: str, world: World) -> None:
    for caller in (Caller(), signed_in(world.olivia)):
        response = caller.get(path)
        assert_kept_by_nobody(response)
        assert response["Content-Security-Policy"] == DATA


def test_the_list_of_models_is_kept_by_its_client_alone_and_never_used_unasked(db: None) -> None:
    response = Caller().get("/v1/models")
    assert (response.status_code, response["Cache-Control"]) == (200, "private, no-cache")
    assert response["Content-Security-Policy"] == DATA


def test_an_answer_that_shows_a_key_or_a_session_is_not_kept(world: World) -> None:
    session = Caller().post("/auth/sign-in/email", {"email": "olivia@example.com", "password": PASSWORD})
    key = signed_in(world.olivia).post("/keys/api", {"description": "a key", "projectId": str(world.project.id)})
    for response in (session, key):
        assert response.status_code == 200
        assert "token" in response.content.decode()
        assert_kept_by_nobody(response)


def test_pages_of_the_admin_run_no_script_but_the_servers_own(db: None) -> None:
    client = Client()
    page: Any = client.get("/admin/login/")
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    for response in (page, client.get("/admin/"), client.get("/admin/organizations/user/")):
        assert response.status_code == 200
        assert_kept_by_nobody(response)
        policy = dict(part.strip().split(" ", 1) for part in response["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        # Alpine's usual build makes functions of what it finds in attributes, which the policy forbids.
        assert b"/admin_site/alpine-csp-" in response.content
        assert b"/alpine/alpine.js" not in response.content
        assert (policy["form-action"], policy["base-uri"]) == ("'self'", "'none'")


def test_the_documents_page_keeps_its_own_policy(client: Client) -> None:
    response = client.get("/docs/api")
    assert "script-src 'self'; style-src 'self';" in response["Content-Security-Policy"]
    assert "unsafe" not in response["Content-Security-Policy"]


def test_over_https_browsers_are_told_to_stay_there(client: Client, settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS = 31_536_000
    assert client.get("/v1/models", secure=True)["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/images/generations"])
def test_what_is_served_ahead_of_django_says_the_same(
    db: None, path: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, str] = {}

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        told.update(headers)
        assert len(told) == len(headers), "none is said twice"

    monkeypatch.setattr(
        answering, "SECURITY_HEADERS", [*answering.SECURITY_HEADERS, ("Strict-Transport-Security", "max-age=1")]
    )
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": "0"}
    body: Iterable[bytes] = application(environ, start)
    assert b"".join(body)
    assert (told["Cache-Control"], told["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert told["Strict-Transport-Security"] == "max-age=1"
