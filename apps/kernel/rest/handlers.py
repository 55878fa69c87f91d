"""Django's error handlers (400, 403, 404, 500) for requests that no view answered.

Knows Django's four handlers. Must never know a route.
"""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse
from django.views import csrf, defaults

from apps.kernel import errors
from apps.kernel.rest.errors import NO_ROUTE, answer, find_error, is_admin, unexpected
from apps.kernel.rest.routes import route_table


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 400 (413 for a body over the limit)."""
    if is_admin(request):
        return defaults.bad_request(request, exception)
    return answer(request, find_error(exception) or errors.InvalidRequest("Bad request"))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 403."""
    if is_admin(request):
        return defaults.permission_denied(request, exception)
    return answer(request, errors.Forbidden("Access denied"))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404."""
    if is_admin(request):
        return defaults.page_not_found(request, exception)
    near = [f"`{path}`" for path in route_table().near(request.path)]
    return answer(request, errors.NotFound(f"{NO_ROUTE}; did you mean {' or '.join(near)}?" if near else NO_ROUTE))


def failed(request: HttpRequest) -> HttpResponse:
    """Answer 500, or 503 when a store is away; a defect is logged, also where the page that is shown is Django's."""
    exception = sys.exc_info()[1]
    known = find_error(exception) if isinstance(exception, Exception) else None
    error = known or unexpected(exception)
    return defaults.server_error(request) if is_admin(request) else answer(request, error)


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 for a form without its token against forgery."""
    if is_admin(request):
        return csrf.csrf_failure(request, reason)
    return answer(request, errors.Forbidden("This form is too old, or came from another site", code="form_expired"))
