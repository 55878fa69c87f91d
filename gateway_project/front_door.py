"""`GET /`: the start page for browsers, the health check for all other clients.

The answers of the two do not depend on each other.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe

from apps.console.pages.welcome import welcome
from apps.kernel.rest.request_headers import prefers_page
from gateway_project.observability.health import health


@require_safe
def front_door(request: HttpRequest) -> HttpResponse | HttpResponseBase:
    """Answer with a page where one is preferred and nothing is asked of the health check."""
    is_page = prefers_page(request.headers.get("Accept", "")) and "skip" not in request.GET
    return welcome(request) if is_page else health(request)
