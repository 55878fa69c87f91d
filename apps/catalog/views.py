"""`GET /v1/models` and `GET /v1/models/{id}`: public (keys are looked at elsewhere), and fast enough to be polled.

Knows query parameters, statuses and what an answer is kept under. Must never know what a model object says.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache

import msgspec
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from apps.catalog import catalog_cache
from apps.catalog.model_listing import build_entry, build_listing
from apps.catalog.offers import Catalog
from apps.catalog.resolve import resolve
from apps.kernel.errors import InvalidRequest, NotFound

_TRUE, _FALSE = {"true", "1"}, {"false", "0"}


@require_safe
def list_models(request: HttpRequest) -> HttpResponse:
    """Answer with every model, whoever asks. Query: `include_deactivated`, `exclude_deprecated`."""
    include_deactivated = _flag(request, "include_deactivated")
    exclude_deprecated = _flag(request, "exclude_deprecated")
    return _answer(_listing(catalog_cache.current(), _today(), include_deactivated, exclude_deprecated))


@require_safe
def read_model(request: HttpRequest, model_id: str) -> HttpResponse:
    """Answer with one model, by any name that chat completions would take."""
    today = _today()
    try:
        resolved = resolve(catalog_cache.current(), model_id, today)
    except InvalidRequest as error:
        raise NotFound(error.message) from error
    live = [offer for offer in resolved.model.offers if offer.is_live(today)]
    return _answer(msgspec.json.encode(build_entry(resolved.model, live)))


@lru_cache(maxsize=4)
def _listing(catalog: Catalog, today: date, include_deactivated: bool, exclude_deprecated: bool) -> bytes:
    """Return the answer's bytes; a catalog is its own key, being one per generation and compared by identity."""
    return msgspec.json.encode(
        build_listing(catalog, today, include_deactivated=include_deactivated, exclude_deprecated=exclude_deprecated)
    )


def _today() -> date:
    return datetime.now(UTC).date()


def _flag(request: HttpRequest, name: str) -> bool:
    """Return a boolean of the query, false when it is not there. Raises InvalidRequest naming it."""
    value = request.GET.get(name, "false").lower()
    if value not in _TRUE | _FALSE:
        raise InvalidRequest(f"{name} must be true or false", param=name)
    return value in _TRUE


def _answer(body: bytes) -> HttpResponse:
    return HttpResponse(body, content_type="application/json", headers={"Content-Length": str(len(body))})
