"""Browser sessions: the cookie, and that it is the API's session."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.test import RequestFactory
from knox.models import AuthToken

from apps.console.browser_session import COOKIE, begin, end, find_browser_session
from apps.organizations.credentials.sessions import end_sessions, find_session, start_session
from tests.support.cast import World


def with_cookie(token: str | None) -> Any:
    request = RequestFactory().get("/app/")
    if token is not None:
        request.COOKIES[COOKIE] = token
    return request


def test_the_cookie_is_kept_from_scripts_and_from_forms_of_other_sites(world: World) -> None:
    response = HttpResponse()
    begin(with_cookie(None), response, world.olivia)
    cookie = response.cookies[COOKIE]
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "Lax"
    assert cookie["path"] == "/"
    assert cookie["domain"] == ""
    assert cookie["max-age"] == 30 * 24 * 3600
    session = find_session(cookie.value)
    assert session is not None
    assert session.user == world.olivia


def test_signing_in_ends_the_session_that_the_browser_came_with(world: World) -> None:
    planted = start_session(world.sam)
    response = HttpResponse()
    begin(with_cookie(planted), response, world.olivia)
    assert response.cookies[COOKIE].value != planted
    assert find_session(planted) is None


def test_a_session_that_ended_elsewhere_is_none_here(world: World) -> None:
    token = start_session(world.olivia)
    found = find_browser_session(with_cookie(token))
    assert found is not None
    assert found.user == world.olivia
    end_sessions(world.olivia)
    assert find_browser_session(with_cookie(token)) is None
    assert find_browser_session(with_cookie("nothing of the kind")) is None
    assert find_browser_session(with_cookie(None)) is None


def test_signing_out_ends_the_session_and_takes_the_cookie_back(world: World) -> None:
    token, response = start_session(world.olivia), HttpResponse()
    end(with_cookie(token), response)
    assert AuthToken.objects.filter(user=world.olivia).count() == 0
    assert response.cookies[COOKIE]["max-age"] == 0
