"""Middleware of Django: request id, body size, content type, error envelope, security headers, messages of pages, and
compression (gzip) of JSON for clients that accept it.

Model endpoints have no compression. Large responses are compressed piece by piece while others are served. Pages are
never compressed: the size of a page with secrets and user input could reveal the secrets (BREACH). JSON needs a key in
a header, which other sites cannot send.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import structlog
from django.conf import settings
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.messages.storage import default_storage
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.functional import SimpleLazyObject, empty

from apps.kernel.concurrency.turn_queue import let_others_go_on
from apps.kernel.errors import BodyTooLarge, UnsupportedMediaType
from apps.kernel.ids import HEADER, OF_ANTHROPIC, request_id_of
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
# POSTs that may carry other content than JSON, by prefix; an empty set accepts anything (specification, section 4).
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
# Load balancers call these by the machine's address, whatever the host name.
_FOR_PROBES = frozenset({"/", "/livez", "/readyz", "/metrics"})


class RequestMiddleware:
    """Adds `x-request-id` to every response, refuses unreadable bodies, and formats every failure."""

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
        # A view that has set the id has also recorded it.
        response.headers.setdefault(HEADER, request_id)
        if ANTHROPIC_VERSION in request.headers:
            response.headers.setdefault(OF_ANTHROPIC, response[HEADER])
        _measure(request, response)
        return response

    def process_view(self, request: HttpRequest, view: Any, *_names: Any) -> HttpResponse | None:
        """Refuse requests that no view could read. Runs after routing, so that an unknown path stays a 404."""
        if request.path not in _FOR_PROBES:
            request.get_host()  # Raises DisallowedHost, which `handlers` answers.
        if is_admin(request) and ("\0" in request.path or "%00" in str(request.META.get("QUERY_STRING", ""))):
            # Django would pass it to the database, which refuses it.
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
        """Format a view's exception; Django's handlers do it for the admin."""
        if is_admin(request):
            return None
        return answer(request, find_error(exception) or unexpected(exception))


def _changes(view: Any) -> bool:
    """Return whether the view may accept writes: classes and pages declare it; function views handle CSRF
    themselves."""
    return hasattr(view, "view_class") or any(getattr(view, name, False) for name in ("csrf_exempt", "is_page"))


def _takes_posts(view: Any) -> bool:
    """Return whether a POST is supported: classes by their methods, model endpoints by their routes' methods
    (`http_methods`); other functions decide themselves."""
    by_class = getattr(view, "view_class", None)
    methods = getattr(view, "http_methods", None)
    return hasattr(by_class, "post") if by_class is not None else methods is None or "POST" in methods


def _measure(request: HttpRequest, response: HttpResponseBase) -> None:
    """Set the length of a complete response, and drop the body for HEAD."""
    if not isinstance(response, HttpResponse):
        return
    if response.status_code == _NOT_MODIFIED:
        # It is the length of another representation.
        del response["Content-Length"]
        return
    response.setdefault("Content-Length", str(len(response.content)))
    if request.method == "HEAD":
        response.content = b""


def _length_of(request: HttpRequest) -> int:
    """Return the announced length of the body; the server has validated its digits."""
    length = str(request.META.get("CONTENT_LENGTH") or "")
    return int(length) if length.isdecimal() else 0


def _is_read(path: str, content_type: str) -> bool:
    for prefix, types in _ALSO_READ:
        if path.startswith(prefix):
            return not types or content_type in types
    return content_type == JSON


class LazyMessageMiddleware(MessageMiddleware):
    """Django's middleware, for storage that most requests never use."""

    def process_request(self, request: Any) -> None:
        """Give the request its messages."""
        request._messages = SimpleLazyObject(lambda: default_storage(request))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Store added messages, if anything accessed the message storage."""
        stored: Any = getattr(request, "_messages", None)
        if isinstance(stored, SimpleLazyObject) and stored.__dict__.get("_wrapped") is empty:
            return response
        return super().process_response(request, response)


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
        headers.setdefault("X-Content-Type-Options", "nosniff")
        if not headers.get("Content-Type", "").startswith("text/html"):
            headers.setdefault("Content-Security-Policy", DATA_POLICY)
        return response


# Minimum bytes; compression level; and zlib's window with a gzip header.
_LEAST: Final = 1_024
# Bytes compressed per step: a millisecond or two.
_PIECE: Final = 64 * 1024
_LEVEL, _GZIP = 6, 31


def gzipped(body: bytes) -> bytes:
    """Return a gzipped body; the same body gives the same bytes."""
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    packed = []
    for start in range(0, len(body), _PIECE):
        if start:
            let_others_go_on()
        packed.append(packing.compress(body[start : start + _PIECE]))
    return b"".join([*packed, packing.flush()])


def accepts_gzip(request: HttpRequest) -> bool:
    """Return whether the client accepts gzip: it is named, or `*` is, with a weight above 0."""
    weights: dict[str, str] = {}
    for stated in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, parameters = stated.partition(";")
        weights[name.strip()] = parameters.replace(" ", "").removeprefix("q=") or "1"
    weight = weights.get("gzip", weights.get("*", "0"))
    return weight.strip("0.") != ""


class CompressionMiddleware:
    """Compresses complete JSON responses to GET."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve the request."""
        response = self._get_response(request)
        if (
            isinstance(response, HttpResponse)
            and request.method in {"GET", "HEAD"}
            and response.status_code == 200
            and len(response.content) >= _LEAST
            and response.headers.get("Content-Type", "").startswith("application/json")
            and not response.has_header("Content-Encoding")
        ):
            patch_vary_headers(response, ("Accept-Encoding",))
            if accepts_gzip(request):
                response.content = gzipped(response.content)
                response["Content-Length"] = str(len(response.content))
                response["Content-Encoding"] = "gzip"
        return response
