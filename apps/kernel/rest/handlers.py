"""Django's error handlers (400, 403, 404, 500) for requests that no view answered."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse

from apps.kernel import errors
from apps.kernel.rest.errors import NO_ROUTE, answer, find_error, is_admin, show_error, unexpected
from apps.kernel.rest.routes import route_table
from apps.kernel.rest.suspicious import FORGED_FORM, count_suspicious


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 400 (413 for a body over the limit)."""
    return _show(request, find_error(exception) or errors.InvalidRequest("Bad request"))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 403."""
    return _show(request, errors.Forbidden("Access denied"))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404."""
    if is_admin(request):
        return show_error(request, errors.NotFound("There is nothing at this path"))
    near = [f"`{path}`" for path in route_table().near(request.path)]
    return answer(request, errors.NotFound(f"{NO_ROUTE}; did you mean {' or '.join(near)}?" if near else NO_ROUTE))


def failed(request: HttpRequest) -> HttpResponse:
    """Answer 500, or 503 if a store is down; a defect is logged."""
    exception = sys.exc_info()[1]
    known = find_error(exception) if isinstance(exception, Exception) else None
    return _show(request, known or unexpected(exception))


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 for a form without its CSRF token."""
    count_suspicious(FORGED_FORM, said=reason[:200])
    return _show(request, errors.Forbidden("This form is too old, or came from another site", code="form_expired"))


def _show(request: HttpRequest, error: errors.ApiError) -> HttpResponse:
    """Answer in the client's format: in the admin always as a page."""
    return show_error(request, error) if is_admin(request) else answer(request, error)
