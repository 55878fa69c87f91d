"""Request middleware: the request id, body size, content type and failure envelope of every request to Django.

Knows the order in which these are looked at. Must never authorize: only the words of an error follow the path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase

from apps.kernel.errors import BodyTooLarge, UnsupportedMediaType
from apps.kernel.request_id import HEADER, OF_ANTHROPIC, request_id_of
from apps.kernel.rest.errors import (
    ANTHROPIC_VERSION,
    answer,
    find_error,
    is_admin,
    method_not_allowed,
    unexpected,
)
from apps.kernel.rest.origin import coming_from

JSON, MULTIPART, FORM = "application/json", "multipart/form-data", "application/x-www-form-urlencoded"
# The POSTs that may carry more than JSON, by prefix; an empty set takes anything (specification, section 4).
_ALSO_READ: tuple[tuple[str, frozenset[str]], ...] = (
    ("/v1/images/edits", frozenset({JSON, MULTIPART})),
    ("/v1/audio/transcriptions", frozenset({JSON, MULTIPART})),
    ("/v1/audio/translations", frozenset({JSON, MULTIPART})),
    ("/oauth/", frozenset({JSON, FORM})),
    ("/verify-email", frozenset({FORM})),
    ("/reset-password", frozenset({FORM})),
    ("/change-email", frozenset({FORM})),
    ("/mcp", frozenset()),
    ("/admin/", frozenset()),
    ("/app/", frozenset({FORM, MULTIPART, JSON})),
)
_NOT_MODIFIED = 304
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# A load balancer asks these by the machine's address, whatever the product is called.
_FOR_PROBES = frozenset({"/", "/livez", "/readyz", "/metrics"})


class RequestMiddleware:
    """Gives every answer its `x-request-id`, refuses bodies nobody reads, and words every failure."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve the request under its id."""
        request_id = request_id_of(request.headers.get(HEADER))
        with structlog.contextvars.bound_contextvars(request_id=request_id), coming_from(request, request_id):
            response = self._get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and not is_admin(request):
            allowed = response["Allow"]
            response = answer(request, method_not_allowed())
            response["Allow"] = allowed
        # A view that has told the id already has recorded it, too.
        response.headers.setdefault(HEADER, request_id)
        if ANTHROPIC_VERSION in request.headers:
            response.headers.setdefault(OF_ANTHROPIC, response[HEADER])
        _measure(request, response)
        return response

    def process_view(self, request: HttpRequest, view: Any, *_names: Any) -> HttpResponse | None:
        """Refuse what no view would read. Runs once a view is found, so that an unknown path stays a 404."""
        if request.path not in _FOR_PROBES:
            request.get_host()  # Raises DisallowedHost, which `handlers` answers.
        if is_admin(request) and ("\0" in request.path or "%00" in str(request.META.get("QUERY_STRING", ""))):
            # The framework would hand it to the database, which refuses it.
            raise SuspiciousOperation("a NUL in an address of the admin")
        if _length_of(request) > settings.BODY_LIMIT:
            return answer(request, BodyTooLarge(f"The request body is larger than {settings.BODY_LIMIT} bytes"))
        if request.method not in _SAFE and not (is_admin(request) or _changes(view)):
            response = answer(request, method_not_allowed())
            response["Allow"] = "GET, HEAD"
            return response
        if request.method == "POST" and _takes_posts(view) and not _is_read(request.path, request.content_type or ""):
            return answer(request, UnsupportedMediaType("Content-Type must be application/json"))
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Word what a view raised; of the admin's, Django's handlers do."""
        if is_admin(request):
            return None
        return answer(request, find_error(exception) or unexpected(exception))


def _changes(view: Any) -> bool:
    """Tell whether the view may take more than reading: a class or a page says so, a function looks after forgery
    itself."""
    return hasattr(view, "view_class") or any(getattr(view, name, False) for name in ("csrf_exempt", "is_page"))


def _takes_posts(view: Any) -> bool:
    """Tell whether a POST has a place to go: a class says so by its method, a model endpoint by its routes' methods
    (`http_methods`), and any other function takes what it takes."""
    by_class = getattr(view, "view_class", None)
    methods = getattr(view, "http_methods", None)
    return hasattr(by_class, "post") if by_class is not None else methods is None or "POST" in methods


def _measure(request: HttpRequest, response: HttpResponseBase) -> None:
    """Tell the length of a whole answer, and send nothing but that to a HEAD."""
    if not isinstance(response, HttpResponse):
        return
    if response.status_code == _NOT_MODIFIED:
        # Whose length is that of an answer that is not here.
        del response["Content-Length"]
        return
    response.setdefault("Content-Length", str(len(response.content)))
    if request.method == "HEAD":
        response.content = b""


def _length_of(request: HttpRequest) -> int:
    """Return the announced length of the body; a server passes no other digits on."""
    length = str(request.META.get("CONTENT_LENGTH") or "")
    return int(length) if length.isdecimal() else 0


def _is_read(path: str, content_type: str) -> bool:
    for prefix, types in _ALSO_READ:
        if path.startswith(prefix):
            return not types or content_type in types
    return content_type == JSON
