"""Model listings in formats of clients: Google's and Anthropic's pages, LiteLLM's model info, Ollama's tags. Pure.

A page ends with the id of its last model, so that models added or removed meanwhile do not shift pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple

from apps.catalog.offers import Catalog, CatalogModel, Offer
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import plain
from apps.kernel.prices import PriceCard

_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]
_CHAT, _EMBEDDING = "chat", "embedding"


def list_google_models(catalog: Catalog, today: date, *, size: int, after: str) -> tuple[list[dict[str, Any]], str]:
    """Return a page of the models that generate content, those after `after` by id, and the token of the next page;
    empty if this is the last."""
    ids = sorted(
        model.id
        for model in catalog.models.values()
        if model.mode == _CHAT and model.id > after and any(offer.is_live(today) for offer in model.offers)
    )
    page = [catalog.models[name] for name in ids[:size]]
    entries = [build_google_entry(model, [offer for offer in model.offers if offer.is_live(today)]) for model in page]
    return entries, ids[size - 1] if len(ids) > size else ""


def build_google_entry(model: CatalogModel, offers: Sequence[Offer]) -> dict[str, Any]:
    """Return Google's object of a model with these offers (at least one)."""
    context = model.context_length or max(offer.context_length or 0 for offer in offers)
    written = model.max_output or max(offer.max_output or 0 for offer in offers)
    entry: dict[str, Any] = {
        "name": f"models/{model.id}",
        "baseModelId": model.id,
        "version": "1",
        "displayName": model.name,
        "description": model.description or f"{model.name}, of the {model.family} family",
        "supportedGenerationMethods": _METHODS if model.mode == _CHAT else [],
        "thinking": any(offer.reasoning for offer in offers),
    }
    if context:
        entry["inputTokenLimit"] = context
    if written:
        entry["outputTokenLimit"] = written
    if any(offer.temperature for offer in offers):
        entry["maxTemperature"] = 2.0
    return entry


_MAX_LIMIT = 1_000
_DIGITS = 4


class ModelPage(NamedTuple):
    """The requested page: its size, and the model before or after it. Without a limit, all models."""

    limit: int | None
    after_id: str | None
    before_id: str | None

    def of(self, models: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the page. Raises InvalidRequest for a cursor that is not a listed model."""
        start, end = 0, len(models)
        if self.after_id is not None:
            start = _place_of("after_id", self.after_id, models) + 1
        if self.before_id is not None:
            end = _place_of("before_id", self.before_id, models)
        limit = len(models) if self.limit is None else self.limit
        if self.before_id is not None:
            first = max(start, end - limit)
            shown, has_more = models[first:end], first > start
        else:
            shown, has_more = models[start : start + limit], start + limit < end
        return {
            "data": [model_of(entry) for entry in shown],
            "has_more": has_more,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
        }


def model_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return Anthropic's model object."""
    return {
        "type": "model",
        "id": entry["id"],
        "display_name": entry["display_name"],
        "created_at": entry["created_at"],
        "max_input_tokens": entry["context_length"] or None,
        "max_tokens": entry["top_provider"]["max_completion_tokens"],
        "lifecycle": "active" if entry["deprecated_at"] is None else "deprecated",
    }


def read_page(query: Mapping[str, str]) -> ModelPage:
    """Return the page in a query. Raises InvalidRequest naming the parameter."""
    after_id, before_id = query.get("after_id"), query.get("before_id")
    if after_id is not None and before_id is not None:
        raise InvalidRequest("after_id and before_id cannot be given together", param="before_id")
    stated = query.get("limit")
    if stated is None:
        return ModelPage(None, after_id, before_id)
    is_number = stated.isascii() and stated.isdecimal() and len(stated) <= _DIGITS
    if not (is_number and 1 <= int(stated) <= _MAX_LIMIT):
        raise InvalidRequest(f"limit must be a whole number from 1 to {_MAX_LIMIT}", param="limit")
    return ModelPage(int(stated), after_id, before_id)


def _place_of(name: str, cursor: str, models: Sequence[dict[str, Any]]) -> int:
    for place, entry in enumerate(models):
        if entry["id"] == cursor:
            return place
    raise InvalidRequest(f"{name} must be the id of a listed model", param=name)


_PER_TOKEN = -6
_TIER_COLUMNS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
}


def build_model_info(catalog: Catalog, today: date, *, only: str | None = None) -> dict[str, Any]:
    """Return the listing: an entry for each model at each provider that serves it, or only those of the id `only`.

    An edition with its own price is found by its name, `provider/own name`, and not listed.
    """
    offers = [(model, offer) for model in catalog.models.values() for offer in model.offers if offer.is_live(today)]
    entries = [_entry(model, offer, f"{offer.provider.id}/{model.id}") for model, offer in offers]
    if only is not None:
        entries = [entry for entry in entries if only in {entry["model_info"]["id"], entry["model_name"]}]
        editions = [(model, one) for model, offer in offers for one in offer.editions if one.is_live(today)]
        entries += [_entry(model, one, only) for model, one in editions if only in _prefixed(one)]
    return {"data": entries}


def _entry(model: CatalogModel, offer: Offer, name: str) -> dict[str, Any]:
    card = offer.prices
    return {
        "model_name": model.id,
        "litellm_params": {"model": name},
        "model_info": {
            "id": name,
            "db_model": False,
            "key": name,
            "litellm_provider": offer.provider.id,
            "mode": model.mode,
            "max_input_tokens": offer.context_length,
            "max_output_tokens": offer.max_output,
            "max_tokens": offer.max_output or offer.context_length,
            "input_cost_per_token": _per_token(card.input),
            "output_cost_per_token": _per_token(card.output),
            "cache_read_input_token_cost": _per_token(card.cached_input),
            "cache_creation_input_token_cost": _per_token(card.cache_write),
            "cache_creation_input_token_cost_above_1hr": _per_token(card.cache_write_1h),
            **_service_tiers(card),
            "input_cost_per_request": _number(card.request),
            "input_cost_per_query": _number(card.search_unit),
            "supports_vision": offer.vision,
            "supports_function_calling": offer.tools,
            "supports_parallel_function_calling": offer.parallel_tools,
            "supports_tool_choice": offer.tool_choice,
            "supports_response_schema": offer.structured_outputs,
            "supports_reasoning": offer.reasoning,
            "supports_web_search": offer.web_search,
            "supports_prompt_caching": offer.prompt_cache,
            "supports_native_streaming": offer.streaming,
            "deprecation_date": None if offer.deactivated_at is None else offer.deactivated_at.isoformat(),
        },
    }


def _prefixed(offer: Offer) -> list[str]:
    return [f"{offer.provider.id}/{name}" for name in offer.own_names]


def _service_tiers(card: PriceCard) -> dict[str, float | None]:
    """Return the prices of other service tiers, by LiteLLM's names, which end with the tier's."""
    return {
        f"{column}_{tier}": _per_token(price)
        for tier, stated in card.service_tiers.items()
        for name, column in _TIER_COLUMNS.items()
        if (price := getattr(stated, name)) is not None
    }


def _per_token(price: Decimal | None) -> float | None:
    return None if price is None else _number(price.scaleb(_PER_TOKEN))


def _number(price: Decimal | None) -> float | None:
    """Return a price as a JSON number."""
    return None if price is None else float(plain(price))


def list_ollama_models(models: Iterable[CatalogModel], today: date) -> list[dict[str, Any]]:
    """Return those of the models that chat or make embeddings, as Ollama lists them.

    None is a file on a disk: sizes are 0, and a model's digest is that of its id.
    """
    live = [(model, [offer for offer in model.offers if offer.is_live(today)]) for model in models]
    return [_ollama_entry(model, offers) for model, offers in live if offers and model.mode in (_CHAT, _EMBEDDING)]


def build_ollama_model(model: CatalogModel, offers: Sequence[Offer]) -> dict[str, Any]:
    """Return Ollama's description of a model with these offers."""
    info: dict[str, Any] = {"general.architecture": model.family, "general.basename": model.name}
    if context := _context_of(model, offers):
        info[f"{model.family}.context_length"] = context
    return {
        "license": "",
        "modelfile": f"FROM {model.id}\n",
        "parameters": "",
        "template": "",
        "details": _ollama_details(model),
        "model_info": info,
        "capabilities": _ollama_capabilities(model, offers),
        "modified_at": _ollama_time(model),
    }


def _ollama_entry(model: CatalogModel, offers: Sequence[Offer]) -> dict[str, Any]:
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": _ollama_time(model),
        "size": 0,
        "digest": sha256(model.id.encode()).hexdigest(),
        "details": {**_ollama_details(model), "context_length": _context_of(model, offers)},
        "capabilities": _ollama_capabilities(model, offers),
    }


def _ollama_details(model: CatalogModel) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": model.family,
        "families": [model.family],
        "parameter_size": "",
        "quantization_level": "",
    }


def _ollama_capabilities(model: CatalogModel, offers: Sequence[Offer]) -> list[str]:
    if model.mode == _EMBEDDING:
        return ["embedding"]
    features = {
        "tools": any(offer.tools for offer in offers),
        "vision": any(offer.vision for offer in offers),
        "thinking": any(offer.reasoning for offer in offers),
    }
    return ["completion", *(name for name, is_offered in features.items() if is_offered)]


def _context_of(model: CatalogModel, offers: Sequence[Offer]) -> int:
    """Return the tokens that a model reads; 0 where they are unknown."""
    return model.context_length or max((offer.context_length or 0 for offer in offers), default=0)


def _ollama_time(model: CatalogModel) -> str:
    return datetime.fromtimestamp(model.created or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
