"""`GET /`: the start page for who opens it in a browser, the health check for everything else.

Knows both. Must never let one's answer depend on the other's.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe

from apps.console.pages.welcome import welcome
from apps.kernel.rest.page_preference import prefers_page
from gateway_project.health import health


@require_safe
def front_door(request: HttpRequest) -> HttpResponse | HttpResponseBase:
    """Answer with a page where one is preferred and nothing is asked of the health check."""
    is_page = prefers_page(request.headers.get("Accept", "")) and "skip" not in request.GET
    return welcome(request) if is_page else health(request)
