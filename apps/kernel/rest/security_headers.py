"""Security headers for all of Django's responses; the hot routes, which bypass Django, add the same as constants.

The settings define the Content-Security-Policy of pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

# JSON is not a page: nothing is loaded or run, wherever a browser shows it.
DATA_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
NO_FEATURES: Final = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
# Responses may contain keys, sessions or private texts; cacheable ones say so themselves.
NOT_KEPT: Final = "no-store"


class SecurityHeadersMiddleware:
    """Adds headers that a view has not set."""

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
