"""Security headers: what browsers and caches must not do with an answer.

What holds for every answer of Django's; the hot routes, which are served ahead of it, say the same as constants. Pages
have a Content-Security-Policy by the settings. Must never know what an answer says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

# Data are no page: nothing is loaded or run for them, wherever a browser shows them.
DATA_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
NO_FEATURES: Final = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
# Every answer may hold a key, a session or somebody's words; what may be kept says so itself.
NOT_KEPT: Final = "no-store"


class SecurityHeadersMiddleware:
    """Adds what a view has not said otherwise."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve the request."""
        response = self._get_response(request)
        headers = response.headers
        headers.setdefault("Cache-Control", NOT_KEPT)
        headers.setdefault("Permissions-Policy", NO_FEATURES)
        if not headers.get("Content-Type", "").startswith("text/html"):
            headers.setdefault("Content-Security-Policy", DATA_POLICY)
        return response
