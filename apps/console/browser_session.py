"""Browser sessions: the API's session token in a cookie, so that cookie and session end together."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import rotate_token
from knox.settings import knox_settings

from apps.organizations.credentials.sessions import extend, find_session, start_session
from apps.organizations.models import User

# Browsers accept a cookie with this prefix only from this host and only over TLS.
COOKIE: Final = "__Host-gateway-session" if settings.SESSION_COOKIE_SECURE else "gateway-session"


class BrowserSession(NamedTuple):
    """The visitor and their session."""

    user: User
    session: Any


def find_browser_session(request: HttpRequest) -> BrowserSession | None:
    """Return the visitor's session and extend it; None without a valid one."""
    token = request.COOKIES.get(COOKIE)
    session = find_session(token) if token else None
    if session is None:
        return None
    extend(session)
    return BrowserSession(session.user, session)


def begin(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Sign the visitor in: end their old session and set the cookie of a new one."""
    token = request.COOKIES.get(COOKIE)
    before = find_session(token) if token else None
    if before is not None:
        before.delete()
    response.set_cookie(
        COOKIE,
        start_session(user),
        max_age=knox_settings.TOKEN_TTL,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        # A link in an e-mail may open a page, but forms of other sites are sent without the cookie.
        samesite="Lax",
    )
    rotate_token(request)


def end(request: HttpRequest, response: HttpResponse) -> None:
    """Sign the visitor out: end the session and delete the cookie."""
    found = find_browser_session(request)
    if found is not None:
        found.session.delete()
    response.delete_cookie(COOKIE, samesite="Lax")
