"""`GET /v1/models/{model}`: one model in the client's format: OpenAI's, Anthropic's or Google's.

Public, but a wrong key is refused. It is served without Django, so that a name that does not exist costs little.
"""
# alone: an endpoint of its own; google_models.py has Google's path of it

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from apps.catalog import catalog_cache
from apps.catalog.client_listings import model_of
from apps.catalog.model_listing import build_entry
from apps.catalog.resolve import resolve
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.anthropic import CLIENT as ANTHROPIC
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints import google_models
from apps.gateway.endpoints.answering import answer_with_errors, json_response
from apps.gateway.endpoints.public import check_key_if_presented, own_listing
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.errors import ANTHROPIC_VERSION
from apps.kernel.rest.routes import Route

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


def _entry_of(model_id: str) -> dict[str, Any]:
    today = datetime.now(UTC).date()
    try:
        resolved = resolve(catalog_cache.current(), model_id, today)
    except InvalidRequest as error:
        raise NotFound(error.message) from error
    live = [offer for offer in resolved.offers if offer.is_live(today)]
    # For an edition, its own price: other offers may be cheaper if a provider is named.
    return build_entry(resolved.model, [offer for offer in live if offer.is_edition] or live)
