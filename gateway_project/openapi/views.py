"""`GET /openapi.json`, and `GET /docs/api`: a page to try everything, which loads nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway_project.openapi.document import document

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    """Answer with the document."""
    return HttpResponse(_encoded(), content_type="application/json", headers={"Access-Control-Allow-Origin": "*"})


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Answer with the page. Its browser is told to load nothing from elsewhere either."""
    page = render(request, "docs.html")
    page["Content-Security-Policy"] = _POLICY
    return page


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(document())
