"""Endpoints of models: lists for clients of every format, one model, and its providers with their performance.

`GET /v1/models/{model}` answers in the client's format, `GET /v1beta/models` in Google's, in pages. Public, but a wrong
key is refused. One model is served without Django, so that a name that does not exist costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec

import msgspec
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from apps.catalog import catalog_cache
from apps.catalog.client_listings import build_google_entry, list_google_models, model_of
from apps.catalog.model_listing import build_endpoints, build_entry
from apps.catalog.offers import CatalogModel, Offer, resolve
from apps.catalog.views import OwnListing
from apps.gateway.access.credentials import CREDITS
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.anthropic import CLIENT as ANTHROPIC
from apps.gateway.dialects.chat.google import CLIENT as GOOGLE
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_with_errors, json_response, view_of
from apps.gateway.routing.availability import reach_of
from apps.gateway.routing.candidates import own_models
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.postgres import replica
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.errors import ANTHROPIC_VERSION
from apps.kernel.rest.request_headers import KEY_HEADERS, find_presented_key
from apps.kernel.rest.routes import Route, family_of
from apps.logs.performance import WINDOWS, Performance, ProviderPerformance, read_performance

Endpoint = Callable[[ClientRequest], ClientResponse]
# Headers that only Google's clients send.
OF_GOOGLE = ("x-goog-api-key", "x-goog-api-client")
# Models on a page: by default, and at most.
_DEFAULT_PAGE, _MAX_PAGE = 50, 1_000


def list_google_model_pages(request: ClientRequest) -> ClientResponse:
    """Answer with a page of the models that generate content. Query: `pageSize`, `pageToken`."""

    def page() -> ClientResponse:
        check_key_if_presented(request)
        size, after = _page_size(request), request.query_parameter("pageToken") or ""
        today = datetime.now(UTC).date()
        models, following = list_google_models(catalog_cache.current(), today, size=size, after=after)
        return json_response(
            msgspec.json.encode({"models": models, **({"nextPageToken": following} if following else {})})
        )

    return answer_with_errors(request, "google_models", GOOGLE, page)


def read_google_model(request: ClientRequest) -> ClientResponse:
    """Answer with one model, by any name that requests may have for it."""

    def model() -> ClientResponse:
        check_key_if_presented(request)
        today = datetime.now(UTC).date()
        name = request.parameters.get("name") or request.parameters["model_id"]
        try:
            resolved = resolve(
                catalog_cache.current(),
                name.removeprefix("models/"),
                today,
            )
        except InvalidRequest as error:
            raise NotFound(error.message) from error
        live = [offer for offer in resolved.offers if offer.is_live(today)]
        return json_response(msgspec.json.encode(build_google_entry(resolved.model, live)))

    return answer_with_errors(request, "google_models", GOOGLE, model)


def unless_google(view: Callable[..., HttpResponseBase], endpoint: Endpoint) -> Callable[..., HttpResponseBase]:
    """Return a view of models in the client's format: some of Google's clients use OpenAI's path."""
    in_googles_words = view_of([Route("v1/models", endpoint, Family.GOOGLE, method="GET")])

    def models(request: HttpRequest, **parameters: str) -> HttpResponseBase:
        is_google = any(name in request.headers for name in OF_GOOGLE)
        return (in_googles_words if is_google else view)(request, **parameters)

    return models


def _page_size(request: ClientRequest) -> int:
    stated = request.query_parameter("pageSize")
    if not stated:
        return _DEFAULT_PAGE
    if not stated.isdecimal() or len(stated) > 9:
        raise InvalidRequest("pageSize must be a whole number", param="pageSize")
    return min(int(stated), _MAX_PAGE) or _DEFAULT_PAGE


Rest = ParamSpec("Rest")
View = Callable[Concatenate[HttpRequest, Rest], HttpResponse]


def public_but_for_wrong_keys(view: View[Rest]) -> View[Rest]:
    """Return the view, which refuses a request that presents a key as the other endpoints would: 401 for one that is
    wrong, 410 for one of a project that is no more."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponse:
        _policy_of(request)
        return view(request, *args, **kwargs)

    return checked


def public_with_own_models(view: View[...]) -> View[...]:
    """Return the view of models as `public_but_for_wrong_keys` does.

    It gets the models of the own servers of the key's organization as `own`, None without a key or where there are
    none, and what the key can call as `find_reach`.
    """

    @wraps(view)
    def checked(request: HttpRequest, /, **parameters: Any) -> HttpResponse:
        policy = _policy_of(request)
        own = None if policy is None else own_listing(policy)
        return view(request, own=own, find_reach=partial(reach_of, policy), **parameters)

    return checked


def own_listing(policy: Policy) -> OwnListing | None:
    """Return the models of the own servers of a key's organization; None where it has none, or does not reach them."""
    credentials = (one for found in policy.own_credentials.values() for one in found)
    if policy.mode == CREDITS or not any(one.models for one in credentials):
        return None
    # The same until something of the organization changes.
    version = (policy.organization_id, policy.generation)
    return OwnListing(version, partial(own_models, policy, catalog_cache.current()))


def _policy_of(request: HttpRequest) -> Policy | None:
    """Return the policy of the key that a request presents; None if it presents none.

    Raises as `check_key_if_presented`.
    """
    query = request.META.get("QUERY_STRING", "") if family_of(request.path) is Family.GOOGLE else ""
    return (
        find_current_policy(find_presented_key(request.headers, query))
        if _presents_any(request.headers, query)
        else None
    )


def _presents_any(headers: Mapping[str, str], query: str) -> bool:
    """Tell whether a header or the query says anything; the word `Bearer` alone is what clients without a key send."""
    said = {name: headers.get(name, "").strip() for name in KEY_HEADERS}
    is_bare = said["authorization"].lower() == "bearer"
    return "key=" in query or (any(said.values()) and not (is_bare and sum(map(bool, said.values())) == 1))


def check_key_if_presented(request: ClientRequest) -> Policy | None:
    """Return the policy of the key that a call to a model endpoint presents; None if it presents none.

    Raises as the other endpoints would for a key that is wrong (401), or of a project that is no more (410).
    """
    query = "key=" if request.route.family is Family.GOOGLE and request.query_parameter("key") else ""
    if _presents_any(request.headers(*KEY_HEADERS), query):
        return find_current_policy(request.presented_key)
    return None


# For Google's clients, some of which use OpenAI's path: their key may be in the query.
_GOOGLES: Final = Route("v1/models/<path:model_id>", read_google_model, Family.GOOGLE, method="GET")


def read_model(request: ClientRequest) -> ClientResponse:
    """Answer with one model, by any name that chat completions accept, or an organization's own."""
    is_anthropic = request.header(ANTHROPIC_VERSION) is not None
    if request.headers(*OF_GOOGLE):
        request.route = _GOOGLES
        return read_google_model(request)

    def model() -> ClientResponse:
        policy, model_id = check_key_if_presented(request), request.parameters["model_id"]
        own = None if policy is None else own_listing(policy)
        mine = None if own is None else own.find(model_id)
        entry = _entry_of(model_id) if mine is None else build_entry(mine, mine.offers)
        return json_response(msgspec.json.encode(model_of(entry) if is_anthropic else entry))

    return answer_with_errors(request, "models", ANTHROPIC if is_anthropic else OPENAI, model)


def read_endpoints(request: ClientRequest) -> ClientResponse:
    """Answer with a model's providers: prices, limits, and uptime, latency and speed of the last day, week and month.

    The format is OpenRouter's, with a field `performance` of its own.
    """

    def endpoints() -> ClientResponse:
        check_key_if_presented(request)
        model, offers = _offers_of(request.parameters["model_id"])
        return json_response(msgspec.json.encode({"data": build_endpoints(model, offers, _Measured(model.id))}))

    return answer_with_errors(request, "models", OPENAI, endpoints)


def _entry_of(model_id: str) -> dict[str, Any]:
    return build_entry(*_offers_of(model_id))


def _offers_of(model_id: str) -> tuple[CatalogModel, list[Offer]]:
    """Return a model with the offers that are served today. Raises NotFound."""
    today = datetime.now(UTC).date()
    try:
        resolved = resolve(catalog_cache.current(), model_id, today)
    except InvalidRequest as error:
        raise NotFound(error.message) from error
    live = [offer for offer in resolved.offers if offer.is_live(today)]
    # For an edition, its own price: other offers may be cheaper if a provider is named.
    return resolved.model, [offer for offer in live if offer.is_edition] or live


# Figures of a period in which a provider was not called.
_NOT_CALLED: Final = Performance()
_PERIODS: Final = {f"last_{name}": window for name, window in WINDOWS.items()}


class _Measured:
    """Measured fields of a model's endpoints; a call returns those of one offer. Raises DatabaseError."""

    def __init__(self, model_id: str) -> None:
        now = datetime.now(UTC)
        self._by_period: dict[str, Mapping[str, ProviderPerformance]] = replica.read(
            lambda using: {
                name: read_performance([model_id], window, now, using).get(model_id, {})
                for name, window in _PERIODS.items()
            }
        )

    def __call__(self, offer: Offer) -> dict[str, Any]:
        live = CIRCUIT_BREAKERS.stats(f"{offer.provider.id}/{offer.model_id}")
        periods = {name: self._figures(found.get(offer.provider.id)) for name, found in self._by_period.items()}
        return {
            # OpenRouter's words for an endpoint that answers, and for one that keeps failing.
            "status": -1 if live.open else 0,
            "uptime_last_5m": live.uptime if live.requests else None,
            "uptime_last_30m": None,
            "uptime_last_1d": periods["last_24h"]["uptime"],
            "performance": periods,
        }

    @staticmethod
    def _figures(found: ProviderPerformance | None) -> dict[str, Any]:
        total = _NOT_CALLED if found is None else found.total
        return {
            "uptime": None if total.uptime is None else round(total.uptime * 100, 2),
            "latency_ms": {"p50": _rounded(total.first_token), "p95": _rounded(total.slow_first_token)},
            "throughput": {"p50": _rounded(total.speed)},
        }


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
