"""LiteLLM's model listing: Catalog -> the body of `GET /model/info`, as clients of LiteLLM's proxy read it. Pure.

It is not limited to the models that a caller may use.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from apps.catalog.offers import Catalog, CatalogModel, Offer
from apps.kernel.money import plain
from apps.kernel.prices import PriceCard

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
