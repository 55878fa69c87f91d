"""WSGI and Django adapters of the model endpoints: one function serves both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from wsgiref.types import StartResponse, WSGIEnvironment

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.kernel.rest.routes import Route

# Statuses that HTTP's registry does not know.
_REASONS = {499: "Client Closed Request", **{status.value: status.phrase for status in HTTPStatus}}

# The header that Django's middleware adds to every other answer (`kernel/rest/middleware.py`).
_NOT_KEPT = ("Cache-Control", "no-store")
_SECURITY = [_NOT_KEPT, ("X-Content-Type-Options", "nosniff")]
if settings.SECURE_HSTS_SECONDS:
    _SECURITY.append(("Strict-Transport-Security", f"max-age={settings.SECURE_HSTS_SECONDS}"))


def respond(
    route: Route, environ: WSGIEnvironment, start_response: StartResponse, parameters: Mapping[str, str] | None = None
) -> Iterable[bytes]:
    """Serve a call straight from WSGI; `parameters` are what its path says beside the route's."""
    answer: ClientResponse = route.endpoint(ClientRequest(environ, route, parameters))
    answer.headers += _SECURITY
    if answer.cache_control is not None:
        answer.headers.remove(_NOT_KEPT)
        answer.headers.append((_NOT_KEPT[0], answer.cache_control))
    start_response(f"{answer.status} {_REASONS.get(answer.status, 'Unknown')}", answer.headers)
    return answer.body


def view_of(routes: Iterable[Route]) -> Callable[..., HttpResponseBase]:
    """Return the Django view of the model endpoints of one path, for the URL map and the test client."""
    by_method = {route.method: route for route in routes if route.method is not None}
    if "GET" in by_method:
        by_method["HEAD"] = by_method["GET"]

    @csrf_exempt
    @require_http_methods(list(by_method))
    def view(request: HttpRequest, **parameters: str) -> HttpResponseBase:
        route = by_method[request.method or ""]
        answer: ClientResponse = route.endpoint(ClientRequest(request.META, route, parameters))
        response: HttpResponseBase
        if isinstance(answer.body, list):
            response = HttpResponse(b"".join(answer.body), status=answer.status)
        else:
            response = StreamingHttpResponse(answer.body, status=answer.status)
        for name, value in answer.headers:
            response[name] = value
        if answer.cache_control is not None:
            response["Cache-Control"] = answer.cache_control
        return response

    # By which metrics tell views apart.
    view.__name__ = next(iter(by_method.values())).endpoint.__name__
    # The middleware reads this before it refuses a body.
    view.http_methods = frozenset(by_method)  # type: ignore[attr-defined] # a function takes any attribute
    return view
