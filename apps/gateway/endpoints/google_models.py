"""`GET /v1beta/models` and `/v1beta/models/{model}`: the models in Google's format, in pages.

Public, but a wrong key is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from apps.catalog import catalog_cache
from apps.catalog.client_listings import build_google_entry, list_google_models
from apps.catalog.resolve import resolve
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.google import CLIENT as GOOGLE
from apps.gateway.endpoints.answering import answer_with_errors, json_response, view_of
from apps.gateway.endpoints.public import check_key_if_presented
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import Route

Endpoint = Callable[[ClientRequest], ClientResponse]
# Headers that only Google's clients send.
OF_GOOGLE = ("x-goog-api-key", "x-goog-api-client")
# Models on a page: by default, and at most.
_DEFAULT_PAGE, _MAX_PAGE = 50, 1_000


def list_models(request: ClientRequest) -> ClientResponse:
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


def read_model(request: ClientRequest) -> ClientResponse:
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
