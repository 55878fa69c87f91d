"""Entry points: every path of the URL map, with example values for ids, and the paths that need no credential."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.urls import URLPattern, get_resolver

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Paths that need no credential: their content is public, or they are the way to sign in. Each states its reason.
OPEN = {
    "": "the health check; no configuration",
    "livez": "whether the process lives",
    "readyz": "whether it takes requests; no reason is told",
    "metrics": "for Prometheus; behind METRICS_TOKEN where it is set",
    "openapi.json": "the document",
    "docs": "leads to the document",
    "docs/api": "the document, to read",
    "docs/api/<str:section>": "documentation",
    "favicon.ico": "leads to the icon",
    "models": "the catalog, as a page",
    "models/<path:model_id>": "the catalog, as a page",
    "models/compare": "the catalog, as a page",
    "app": "leads to the console",
    "v1/models": "the catalog",
    "v1/models/<path:model_id>": "the catalog",
    "v1/models/<path:model_id>/endpoints": "the catalog",
    "v1/model/info": "the catalog",
    "model/info": "the catalog",
    "v1beta/models": "the catalog",
    "v1beta/models/<path:name>": "the catalog; to have content generated takes a key, see test_known_vulnerabilities",
    "auth/sign-up/email": "throttled",
    "auth/sign-in/email": "throttled",
    "auth/sign-in/passkey/options": "a challenge; throttled",
    "auth/sign-in/passkey": "throttled",
    "auth/get-session": "",
    "auth/sign-out": "",
    "auth/verify-email": "takes a token that was sent by e-mail; throttled",
    "auth/send-verification-email": "answers the same for every address; throttled",
    "auth/request-password-reset": "answers the same for every address; throttled",
    "auth/reset-password": "takes a token that was sent by e-mail; throttled",
    "verify-email": "a form for a token that was sent by e-mail; throttled",
    "reset-password": "a form for a token that was sent by e-mail; throttled",
    "auth/change-email/confirm": "takes a token that was sent by e-mail; throttled",
    "change-email": "a form for a token that was sent by e-mail; throttled",
    "admin": "leads to the sign-in",
    ".well-known/oauth-authorization-server": "metadata",
    ".well-known/oauth-authorization-server/<path:path>": "metadata",
    ".well-known/oauth-protected-resource": "metadata",
    ".well-known/oauth-protected-resource/<path:path>": "metadata",
    "api/tags": "the catalog; a wrong key is refused",
    "api/ps": "an empty list; a wrong key is refused",
    "api/version": "a constant; a wrong key is refused",
    "oauth/register": "gives nothing but a name; throttled",
    "oauth/token": "takes a code or a refresh token; throttled",
    "oauth/revoke": "takes a token; throttled",
    "v1/auth/keys": "takes a code; throttled",
    "oauth/authorize": "a page that leads to the sign-in",
    "oauth/key": "a page that leads to the sign-in",
    "auth": "leads to the page where a program asks for a key",
    "webhooks/stripe": "signed by the processor",
}
# The paths among these that ask for a session all the same.
_ASK = {"auth/get-session", "auth/sign-out"}
_ID = "01990000-0000-7000-8000-000000000000"


def paths() -> Iterator[str]:
    """Yield the route of every path outside the admin."""
    for pattern in get_resolver().url_patterns:
        if isinstance(pattern, URLPattern):
            yield str(pattern.pattern)


def closed() -> list[str]:
    """Return the paths that need a key or a session, ready to be requested."""
    return [f"/{filled(route)}" for route in paths() if route not in OPEN or route in _ASK]


def opened() -> list[str]:
    """Return the paths that need no credential."""
    return [f"/{filled(route)}" for route in paths() if route in OPEN and route not in _ASK]


def filled(route: str) -> str:
    """Return a route with example values for its ids."""
    return re.sub(r"<\w+:\w+>", _ID, route.replace("<int:number>", "0"))
