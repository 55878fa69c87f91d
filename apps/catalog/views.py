"""The model listings `/v1/models` and LiteLLM's `/model/info`: public, and fast enough for polling."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.views.decorators.http import require_safe

from apps.catalog import catalog_cache
from apps.catalog.client_listings import build_model_info, read_page
from apps.catalog.model_listing import build_entry, build_listing, list_of
from apps.catalog.offers import Catalog, CatalogModel, Reach
from apps.kernel.concurrency.native_thread_pool import LARGE, offload
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.middleware import accepts_gzip, gzipped

_TRUE, _FALSE = {"true", "1"}, {"false", "0"}


@dataclass(frozen=True, slots=True)
class OwnListing:
    """The models of an organization's own servers, for its API keys; those of one version are the same."""

    version: Hashable
    read: Callable[[], Sequence[CatalogModel]] = field(compare=False)

    def find(self, model_id: str) -> CatalogModel | None:
        """Return a model by one of its names, None if there is none; Ollama's may be without the tag `latest`."""
        wanted = (model_id, f"{model_id}:latest")
        return next(
            (one for one in self.read() if one.id in wanted or any(name in wanted for name in one.aliases)), None
        )


@require_safe
def list_models(
    request: HttpRequest,
    own: OwnListing | None = None,
    find_reach: Callable[[Catalog], Reach] | None = None,
) -> HttpResponse:
    """List all models, an organization's own first.

    Query: `include_deactivated`, `exclude_deprecated`, `callable`: only the models that `find_reach` returns, and
    `reasons`: with why the others cannot be called.
    """
    flags = _flag(request, "include_deactivated"), _flag(request, "exclude_deprecated")
    is_narrow, is_explained = _flag(request, "callable"), _flag(request, "reasons")
    for name, is_set in (("callable", is_narrow), ("reasons", is_explained)):
        if is_set and flags[0]:
            raise InvalidRequest(f"{name} and include_deactivated cannot both be true", param="include_deactivated")
    catalog, today = catalog_cache.current(), _today()
    if (is_narrow or is_explained) and find_reach is not None:
        listing = _reachable_listing(own, find_reach(catalog), catalog, today, flags[1], is_narrow, is_explained)
    else:
        listing = _listing(catalog, today, *flags) if own is None else _listing_with_own(own, catalog, today, *flags)
    if "anthropic-version" in request.headers:
        return _answer(msgspec.json.encode(read_page(request.GET).of(listing.models)))
    return _kept(request, listing)


class _Listing(NamedTuple):
    """The models, and the complete answer: its bytes, compressed bytes, and entity tag."""

    models: list[dict[str, Any]]
    body: bytes
    packed: bytes
    tag: str


@require_safe
def model_info(request: HttpRequest) -> HttpResponse:
    """Return every model at every provider as LiteLLM's proxy does; only one with the query `litellm_model_id`."""
    only = request.GET.get("litellm_model_id")
    catalog, today = catalog_cache.current(), _today()
    if only is None:
        return _answer(_model_info(catalog, today))
    found = build_model_info(catalog, today, only=only)
    if not found["data"]:
        raise NotFound(f"There is no model of the id {only[:100]}")
    return _answer(msgspec.json.encode(found))


@lru_cache(maxsize=2)
def _model_info(catalog: Catalog, today: date) -> bytes:
    return offload(LARGE, lambda: msgspec.json.encode(build_model_info(catalog, today)))


@lru_cache(maxsize=4)
def _listing(catalog: Catalog, today: date, include_deactivated: bool, exclude_deprecated: bool) -> _Listing:
    """Return the listing; catalogs are compared by identity, one per generation.

    It is built on a thread: the first request after a start or a new catalog needs a tenth of a second of computing.
    """
    return offload(LARGE, lambda: _build(catalog, today, include_deactivated, exclude_deprecated))


@lru_cache(maxsize=8)
def _listing_with_own(
    own: OwnListing, catalog: Catalog, today: date, include_deactivated: bool, exclude_deprecated: bool
) -> _Listing:
    """Return the listing with an organization's own models before those of the catalog."""
    others = _listing(catalog, today, include_deactivated, exclude_deprecated).models
    models = own.read()
    return offload(LARGE, lambda: _packed(list_of([*(build_entry(one, one.offers) for one in models), *others])))


@lru_cache(maxsize=8)
def _reachable_listing(
    own: OwnListing | None,
    reach: Reach,
    catalog: Catalog,
    today: date,
    exclude_deprecated: bool,
    is_narrow: bool,
    is_explained: bool,
) -> _Listing:
    """Return the listing of what a caller can call, or of all with the reasons, with an organization's own models
    first."""
    models = () if own is None else own.read()

    def build() -> _Listing:
        others = build_listing(
            catalog,
            today,
            include_deactivated=False,
            exclude_deprecated=exclude_deprecated,
            allows=reach.allows if is_narrow else None,
            find_obstacle=reach.find_obstacle if is_explained else None,
        )["data"]
        mine = [build_entry(one, one.offers, (lambda _: "") if is_explained else None) for one in models]
        return _packed(list_of([*mine, *others]))

    return offload(LARGE, build)


def _build(catalog: Catalog, today: date, include_deactivated: bool, exclude_deprecated: bool) -> _Listing:
    return _packed(
        build_listing(catalog, today, include_deactivated=include_deactivated, exclude_deprecated=exclude_deprecated)
    )


def _packed(listing: dict[str, Any]) -> _Listing:
    body = msgspec.json.encode(listing)
    return _Listing(listing["data"], body, gzipped(body), blake2b(body, digest_size=16).hexdigest())


def _kept(request: HttpRequest, listing: _Listing) -> HttpResponse:
    """Return the listing, which clients may cache and revalidate (304)."""
    is_packed = accepts_gzip(request)
    response = _answer(listing.packed if is_packed else listing.body)
    if is_packed:
        response["Content-Encoding"] = "gzip"
    # The compressed representation has its own entity tag.
    tag = f'"{listing.tag}-gzip"' if is_packed else f'"{listing.tag}"'
    response["ETag"] = tag
    response["Cache-Control"] = "private, no-cache"
    patch_vary_headers(response, ("Accept-Encoding", "Origin", "anthropic-version"))
    answer = get_conditional_response(request, etag=tag, response=response)
    assert isinstance(answer, HttpResponse)  # noqa: S101 - it is the response, or one that says that nothing changed
    return answer


def _today() -> date:
    return datetime.now(UTC).date()


def _flag(request: HttpRequest, name: str) -> bool:
    """Return a boolean of the query, false if it is absent. Raises InvalidRequest naming it."""
    value = request.GET.get(name, "false").lower()
    if value not in _TRUE | _FALSE:
        raise InvalidRequest(f"{name} must be true or false", param=name)
    return value in _TRUE


def _answer(body: bytes) -> HttpResponse:
    return HttpResponse(body, content_type="application/json", headers={"Content-Length": str(len(body))})
