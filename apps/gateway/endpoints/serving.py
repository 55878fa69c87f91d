"""WSGI and Django adapters of the hot endpoints: one function serves both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from http import HTTPStatus
from wsgiref.types import StartResponse, WSGIEnvironment

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from apps.gateway.client.http_request import ClientRequest, ClientResponse

Endpoint = Callable[[ClientRequest], ClientResponse]
# Statuses that HTTP's registry does not know.
_REASONS = {499: "Client Closed Request", **{status.value: status.phrase for status in HTTPStatus}}

# What Django's middleware says of every other answer (`kernel/rest/security_headers.py`).
_SECURITY = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
if settings.SECURE_HSTS_SECONDS:
    _SECURITY.append(("Strict-Transport-Security", f"max-age={settings.SECURE_HSTS_SECONDS}"))


def respond(endpoint: Endpoint, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Serve a call straight from WSGI."""
    answer = endpoint(ClientRequest(environ))
    answer.headers += _SECURITY
    start_response(f"{answer.status} {_REASONS.get(answer.status, 'Unknown')}", answer.headers)
    return answer.body


def view_of(endpoint: Endpoint) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return the Django view of an endpoint, for the URL map and the test client."""

    @csrf_exempt
    @require_POST
    @wraps(endpoint)
    def view(request: HttpRequest) -> HttpResponseBase:
        answer = endpoint(ClientRequest(request.META))
        response: HttpResponseBase
        if isinstance(answer.body, list):
            response = HttpResponse(b"".join(answer.body), status=answer.status)
        else:
            response = StreamingHttpResponse(answer.body, status=answer.status)
        for name, value in answer.headers:
            response[name] = value
        return response

    return view
