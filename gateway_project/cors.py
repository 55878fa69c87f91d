"""CORS: which web pages may call the model APIs from a browser, by the deployment's list and by each key's own.

Only origins that are named get an answer that their page may read, and never one that goes with cookies: a page has to
bring a key. Nothing but the APIs of models is opened. Must never let a request in that would be refused without it.
Preflight requests carry no key: the origins that all working keys allow answer them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIEnvironment

import structlog
from django.db import DatabaseError

from apps.gateway.access.policy import find_policy
from apps.kernel.errors import ApiError, Forbidden
from apps.kernel.postgres import database
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.request_headers import KEY_HEADERS, find_presented_key
from apps.kernel.rest.routes import family_of, route_table
from apps.keys.models import ApiKey
from gateway_project.configuration.web_origins import ANY, CorsOrigins
from gateway_project.http.response_writer import refusal

log = structlog.get_logger(__name__)

# Maximum keys whose origins are cached, and the cache's lifetime in seconds.
_MAX_ORIGIN_KEYS: Final = 10_000
_ORIGINS_MAX_AGE: Final = 10.0


class _KnownOrigins:
    """The origins of working keys: read again when they are old, kept while the database does not answer."""

    def __init__(self) -> None:
        self._origins: frozenset[str] = frozenset()
        self._read_at: float | None = None

    def __contains__(self, origin: str) -> bool:
        if self._read_at is None or time.monotonic() - self._read_at > _ORIGINS_MAX_AGE:
            # Concurrent requests get the old value meanwhile.
            self._read_at = time.monotonic()
            try:
                self._origins = database.read(partial(_read_origins), brief=True)
            except DatabaseError as error:
                log.warning("cors.origins_not_read", error=type(error).__name__)
        return origin in self._origins

    def forget(self) -> None:
        """Read them again on next use."""
        self._read_at = None


known_origins = _KnownOrigins()


def _read_origins() -> frozenset[str]:
    keys = ApiKey.objects.filter(status=ApiKey.Status.ACTIVE).exclude(allowed_origins=[])
    lists = keys.values_list("allowed_origins", flat=True)[:_MAX_ORIGIN_KEYS]
    return frozenset(origin for origins in lists for origin in origins)


Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]
# All others are APIs of models, those with errors of a client format's own too: pages may call them, and a key's
# allowedOrigins hold there.
_CLOSED = frozenset({Family.LOGS, Family.MANAGEMENT, Family.OAUTH, Family.PAGES})
_KEY_HEADERS = {name: f"HTTP_{name.upper().replace('-', '_')}" for name in KEY_HEADERS}
_EXPOSED = (
    "x-request-id, request-id, x-should-retry, retry-after, ratelimit-limit, ratelimit-remaining, ratelimit-reset, "
    "x-gateway-cache, x-gateway-loss, x-gateway-rerouted, mcp-session-id"
)
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
# Names of headers that a page asks to send: SDKs have many of their own.
_NAMES = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
_USUAL_NAMES = "authorization, content-type, x-api-key"
# Characters of them; seconds for which a browser need not ask again.
_MAX_NAMES, _MAX_AGE = 4_096, 7_200
_SHOWN = 200


class Cors:
    """Serves requests that say which page they come from (`Origin`)."""

    def __init__(self, deployment: CorsOrigins) -> None:
        self._deployment = deployment

    def serve(
        self, environ: WSGIEnvironment, start_response: StartResponse, application: Application
    ) -> Iterable[bytes]:
        """Answer a request by the application, or instead of it: a preflight, and a key's use at a foreign page."""
        route_table().normalize(environ)
        if family_of(environ["PATH_INFO"]) in _CLOSED:
            return application(environ, start_response)
        origin = environ["HTTP_ORIGIN"]
        if environ["REQUEST_METHOD"] == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ:
            return self._answer_preflight(environ, origin, start_response)
        own = _origins_of_key(environ)
        if own and origin not in own:
            words = "This API key may not be used by pages of %s: its allowedOrigins do not name it"
            return _refuse(environ, words, origin, start_response)
        # Pages of origins that any valid key allows may read the error for an invalid key.
        is_admitted = bool(own) or self._deployment.admit(origin) or (own is None and origin in known_origins)
        added = self._headers(origin) if is_admitted else []

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            exposed = [*headers, ("Vary", "Origin"), *added]
            return start_response(status, exposed, exc_info) if exc_info else start_response(status, exposed)

        return application(environ, start)

    def _answer_preflight(
        self, environ: WSGIEnvironment, origin: str, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Tell a browser what a page may send. It brings no key yet: what some key allows is enough to ask."""
        if not (self._deployment.admit(origin) or origin in known_origins):
            words = (
                "Pages of %s may not call this: neither CORS_ALLOWED_ORIGINS nor an API key's allowedOrigins name it"
            )
            return _refuse(environ, words, origin, start_response)
        names = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "").strip()
        if len(names) > _MAX_NAMES or not _NAMES.fullmatch(names):
            names = _USUAL_NAMES
        start_response(
            "204 No Content",
            [
                *self._headers(origin),
                ("Access-Control-Allow-Methods", _METHODS),
                ("Access-Control-Allow-Headers", names),
                ("Access-Control-Max-Age", str(_MAX_AGE)),
                ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
                ("Cache-Control", "no-store"),
            ],
        )
        return []

    def _headers(self, origin: str) -> list[tuple[str, str]]:
        """Return what lets a page read an answer. Never `Access-Control-Allow-Credentials`: cookies open nothing."""
        shown = ANY if self._deployment.every else origin
        return [("Access-Control-Allow-Origin", shown), ("Access-Control-Expose-Headers", _EXPOSED)]


def _origins_of_key(environ: WSGIEnvironment) -> frozenset[str] | None:
    """Return the origins that the request's key names; None without a key that works."""
    headers = {name: environ[sent] for name, sent in _KEY_HEADERS.items() if sent in environ}
    is_google = family_of(environ["PATH_INFO"]) is Family.GOOGLE
    try:
        token = find_presented_key(headers, environ.get("QUERY_STRING", "") if is_google else "")
        return find_policy(token).allowed_origins
    except (ApiError, DatabaseError):
        # The application says what is wrong with it.
        return None


def _refuse(environ: WSGIEnvironment, words: str, origin: str, start_response: StartResponse) -> Iterable[bytes]:
    error = Forbidden(words % origin[:_SHOWN], code="origin_not_allowed")
    status, headers, body = refusal(environ, error)
    start_response(status, [*headers, ("Vary", "Origin"), ("Cache-Control", "no-store")])
    return [body]
