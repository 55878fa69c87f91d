"""`GET /openapi.json`, whole or one tag's part, and `GET /docs/api`: pages that list every operation, to try them.

The pages load nothing from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from apps.kernel.concurrency.native_thread_pool import ComputedOnce
from apps.kernel.errors import NotFound
from gateway_project.openapi.document import METHODS, document, part_of, slug_of, tags

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TAG: Final = "tag"


class _Reference(NamedTuple):
    """The contents of the pages and of `/openapi.json`, the same in each answer."""

    encoded: bytes
    # The tags in order, each with its operations and where its page shows them.
    sections: list[dict[str, Any]]
    operations: SafeString
    total: int


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    """Answer with the document, or with the part of it that is of a tag."""
    wanted = request.GET.get(_TAG)
    body = _reference().encoded if wanted is None else _encoded_part(_tag_at(wanted)["name"])
    return HttpResponse(body, content_type="application/json", headers={"Access-Control-Allow-Origin": "*"})


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Answer with the list of all operations."""
    reference = _reference()
    context = {"sections": reference.sections, "operations": reference.operations, "count": reference.total}
    return _page(request, "docs/list.html", {"open_page": "docs", **context})


@require_safe
def docs_section(request: HttpRequest, section: str) -> HttpResponse:
    """Answer with the page of a tag, where its operations are described and tried."""
    context = {"tag": _tag_at(section), "slug": section, "sections": _reference().sections, "open_page": "docs-part"}
    return _page(request, "docs/section.html", context)


def _page(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """Write a page. Its headers forbid the browser to load anything from other servers."""
    page = render(request, template, context)
    page["Content-Security-Policy"] = _POLICY
    return page


def _tag_at(slug: str) -> dict[str, Any]:
    """Return the tag that an address names. Raises NotFound."""
    for tag in tags():
        if slug_of(tag["name"]) == slug:
            return tag
    raise NotFound("The API reference has no such part; /docs/api lists them")


def _reference() -> _Reference:
    """Return the pages' contents, made once a process."""
    document()
    return _REFERENCE.get()


def _make_reference() -> _Reference:
    operations = list(_operations())
    sections = [_section(tag, operations) for tag in tags()]
    html = render_to_string("docs/operations.html", {"sections": sections})
    return _Reference(msgspec.json.encode(document()), sections, html, len(operations))


_REFERENCE: Final = ComputedOnce(_make_reference)


def _section(tag: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    slug = slug_of(tag["name"])
    listed = [
        {**one, "url": f"/docs/api/{slug}#/{quote(tag['name'])}/{one['id']}"}
        for one in operations
        if one["tag"] == tag["name"]
    ]
    return {**tag, "slug": slug, "url": f"/docs/api/{slug}", "operations": listed}


def _operations() -> Iterator[dict[str, Any]]:
    for path, operations in document()["paths"].items():
        for method in METHODS:
            if (operation := operations.get(method)) is not None:
                yield {
                    "method": method,
                    "path": path,
                    # Every second piece is code, which Markdown marks so.
                    "summary": operation["summary"].split("`"),
                    "id": operation["operationId"],
                    "tag": operation["tags"][0],
                }


@cache
def _encoded_part(tag: str) -> bytes:
    return msgspec.json.encode(part_of(document(), tag))
