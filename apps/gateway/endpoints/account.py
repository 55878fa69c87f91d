"""`GET /v1/key`, `/v1/credits` and `/v1/generation`: what an API key may ask about itself, as in OpenRouter."""

from __future__ import annotations

import msgspec
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.gateway.account_reports import Report, find_generation, report_credits, report_key
from apps.kernel.errors import Gone, InvalidRequest, NotFound, Unauthenticated
from apps.kernel.rest.request_headers import MISSING_KEY, find_presented_key
from apps.keys.authenticate import find_api_key, works
from apps.keys.models import ApiKey
from apps.organizations.models import Project

_ENCODER = msgspec.json.Encoder(decimal_format="number")
# Characters of an id that may be one.
_MAX_ID_LENGTH = 100


@require_safe
def current_key(request: HttpRequest) -> HttpResponse:
    """Answer with the API key that asks: its limit, and what it has spent."""
    return _answer(report_key(_authenticated(request), timezone.now()))


@require_safe
def credits_left(request: HttpRequest) -> HttpResponse:
    """Answer with what the key's organization was credited, and what it has spent."""
    return _answer(report_credits(_authenticated(request)))


@require_safe
def generation(request: HttpRequest) -> HttpResponse:
    """Answer with what a request used and cost, by its answer's id (`id`)."""
    key = _authenticated(request)
    name = request.GET.get("id", "")
    if not name:
        raise InvalidRequest("id: Required", code="invalid_parameters", param="id")
    report = None if len(name) > _MAX_ID_LENGTH else find_generation(key, name, timezone.now())
    if report is None:
        raise NotFound("Generation not found")
    return _answer(report)


def _authenticated(request: HttpRequest) -> ApiKey:
    """Return the key that is presented. Raises Unauthenticated, Gone."""
    key = find_api_key(find_presented_key(request.headers))
    if key is None or not works(key):
        raise Unauthenticated(MISSING_KEY)
    if key.project.status != Project.Status.ACTIVE:
        raise Gone(f"This project has been {key.project.status}")
    return key


def _answer(report: Report) -> HttpResponse:
    return HttpResponse(_ENCODER.encode({"data": report}), content_type="application/json")
