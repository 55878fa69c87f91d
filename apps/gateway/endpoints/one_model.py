"""`GET /v1/models/{model}`: one model in the client's format, and its providers with their performance.

Public, but a wrong key is refused. It is served without Django, so that a name that does not exist costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from apps.catalog import catalog_cache
from apps.catalog.client_listings import model_of
from apps.catalog.model_listing import build_endpoints, build_entry
from apps.catalog.offers import CatalogModel, Offer
from apps.catalog.resolve import resolve
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.anthropic import CLIENT as ANTHROPIC
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints import google_models
from apps.gateway.endpoints.answering import answer_with_errors, json_response
from apps.gateway.endpoints.public import check_key_if_presented, own_listing
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.postgres import replica
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.errors import ANTHROPIC_VERSION
from apps.kernel.rest.routes import Route
from apps.logs.performance import WINDOWS, Performance, ProviderPerformance, read_performance

# For Google's clients, some of which use OpenAI's path: their key may be in the query.
_GOOGLES: Final = Route("v1/models/<path:model_id>", google_models.read_model, Family.GOOGLE, method="GET")


def read_model(request: ClientRequest) -> ClientResponse:
    """Answer with one model, by any name that chat completions accept, or an organization's own."""
    is_anthropic = request.header(ANTHROPIC_VERSION) is not None
    if request.headers(*google_models.OF_GOOGLE):
        request.route = _GOOGLES
        return google_models.read_model(request)

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
