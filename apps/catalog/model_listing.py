"""Model listing: Catalog -> the body of `GET /v1/models`, which clients of three kinds of API can read. Pure.

It is not limited to the models that a caller may use. A model's fields are computed from its listed offers; its prices
are those of the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from apps.catalog.offers import STABILITIES, Catalog, CatalogModel, Offer
from apps.kernel.money import ZERO, plain
from apps.kernel.prices import PriceCard

_TO_ONE_TOKEN = -6
# Names of modes in OpenRouter's listing.
_LISTED_AS = {"embedding": "embeddings"}
# Names of modes in descriptions.
_KINDS = {
    "audio_speech": "Speech",
    "audio_transcription": "Transcription",
    "chat": "Chat",
    "embedding": "Embedding",
    "image_generation": "Image",
    "moderation": "Moderation",
    "rerank": "Reranking",
}
# Models are compared by the price of a million tokens each in and out, and of a thousand units of other kinds.
_PIECES = 1000
_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "stop")


def build_listing(
    catalog: Catalog,
    today: date,
    *,
    include_deactivated: bool,
    exclude_deprecated: bool,
    allows: Callable[[Offer], bool] | None = None,
    find_obstacle: Callable[[Offer], str] | None = None,
) -> dict[str, Any]:
    """Return the whole listing, or the part with the offers that `allows` returns true for.

    With `find_obstacle`, entries say why they cannot be called.
    Models that every provider has shut off are left out unless `include_deactivated`; with `exclude_deprecated`, offers
    with an announced end are ignored.
    """
    entries = []
    for model in catalog.models.values():
        live = [offer for offer in model.offers if offer.is_live(today) and (allows is None or allows(offer))]
        offers = live or (model.offers if include_deactivated else ())
        shown = [offer for offer in offers if not (exclude_deprecated and offer.is_deprecated(today))]
        if shown:
            entries.append(build_entry(model, shown, find_obstacle))
    return list_of(entries)


def list_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the listing of model objects."""
    return {
        "object": "list",
        "data": entries,
        # For OpenRouter's clients; there is one page.
        "total_count": len(entries),
        "links": {"next": None},
        # For Anthropic's clients; there is one page.
        "has_more": False,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
    }


def build_entry(
    model: CatalogModel, offers: Sequence[Offer], find_obstacle: Callable[[Offer], str] | None = None
) -> dict[str, Any]:
    """Return the model object with these offers (at least one).

    With `find_obstacle`, it has `unavailable`: why it cannot be called at all, and at each provider; null if it can.
    """
    cheapest = min(offers, key=_price_of)
    created = model.created or 0
    reasons = None if find_obstacle is None else [find_obstacle(offer) for offer in offers]
    outputs = [_LISTED_AS.get(modality, modality) for modality in model.output_modalities]
    return {
        "id": model.id,
        "object": "model",
        "type": "model",
        "name": model.name,
        "display_name": model.name,
        "description": model.description or _description_of(model, offers),
        "family": model.family,
        "canonical_slug": model.id,
        "owned_by": model.owned_by,
        "aliases": model.aliases,
        # 0 if the day is unknown: clients require a number.
        "created": created,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": {
            "modality": f"{'+'.join(model.input_modalities)}->{'+'.join(outputs)}",
            "input_modalities": model.input_modalities,
            "output_modalities": outputs,
            "tokenizer": model.facts.get("tokenizer", "Other"),
            "instruct_type": None,
        },
        "top_provider": {
            "is_moderated": bool(cheapest.facts.get("moderated")),
            "context_length": cheapest.context_length or model.context_length,
            "max_completion_tokens": cheapest.max_output or model.max_output,
        },
        "providers": [
            _provider_of(offer) | ({} if reasons is None else {"unavailable": reasons[number] or None})
            for number, offer in enumerate(offers)
        ],
        "pricing": _pricing_of(cheapest.prices),
        "context_length": model.context_length or max(offer.context_length or 0 for offer in offers),
        "supported_parameters": _parameters_of(model, offers),
        # The gateway adds no parameters to requests.
        "default_parameters": None,
        "per_request_limits": None,
        "supported_voices": None,
        "links": {"details": f"/v1/models/{quote(model.id)}"},
        "json_output": any(offer.json_output for offer in offers),
        "structured_outputs": any(offer.structured_outputs for offer in offers),
        "free": any(offer.prices.free for offer in offers),
        "stability": min((offer.stability for offer in offers), key=STABILITIES.index),
        "deprecated_at": model.deprecated_at,
        "deactivated_at": model.deactivated_at,
        # Only where it was asked for.
        **({} if reasons is None else {"unavailable": "; ".join(dict.fromkeys(reasons)) if all(reasons) else None}),
    }


def _provider_of(offer: Offer) -> dict[str, Any]:
    editions = [
        {"modelNames": one.own_names, "pricing": _short_pricing_of(one), "deactivated_at": one.deactivated_at}
        for one in offer.editions
    ]
    return {
        "providerId": offer.provider.id,
        "modelName": offer.model_name,
        "pricing": _short_pricing_of(offer),
        "streaming": offer.streaming,
        "vision": offer.vision,
        "cancellation": offer.cancellation,
        "tools": offer.tools,
        "parallelToolCalls": offer.parallel_tools,
        "reasoning": offer.reasoning,
        "stability": offer.stability,
        # Only for the few models with them: names there with their own price.
        **({"editions": editions} if editions else {}),
    }


def build_endpoints(
    model: CatalogModel, offers: Sequence[Offer], measured: Callable[[Offer], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a model with its offers as OpenRouter lists endpoints; `measured` returns an offer's measured fields."""
    entry = build_entry(model, offers)
    return {
        **{name: entry[name] for name in ("id", "name", "created", "description", "architecture")},
        "endpoints": [{**_endpoint_of(model, offer), **measured(offer)} for offer in sorted(offers, key=_price_of)],
    }


def _endpoint_of(model: CatalogModel, offer: Offer) -> dict[str, Any]:
    return {
        "name": f"{offer.provider.name} | {model.id}",
        "model_id": model.id,
        # The provider's name of the model.
        "model_name": offer.model_name,
        "provider_name": offer.provider.name,
        # For requests that name a provider: `tag/model`.
        "tag": offer.provider.id,
        "quantization": None,
        "context_length": offer.context_length or model.context_length,
        "max_prompt_tokens": None,
        "max_completion_tokens": offer.max_output or model.max_output,
        "pricing": _pricing_of(offer.prices),
        "supported_parameters": _parameters_of(model, [offer]),
        "supports_implicit_caching": offer.prompt_cache,
        "stability": offer.stability,
        "deprecated_at": offer.deprecated_at,
        "deactivated_at": offer.deactivated_at,
    }


def _short_pricing_of(offer: Offer) -> dict[str, str]:
    prices = _pricing_of(offer.prices)
    return {name: prices[name] for name in ("prompt", "completion", "image")}


def _pricing_of(card: PriceCard) -> dict[str, str]:
    """Return the price of one unit, in USD: a token, an image, a request, a search; a search unit, a character, a
    minute of audio if the model has such a price.

    These are the charged prices: cached tokens without their own price cost as much as other prompt tokens, and
    reasoning is part of the completion and not charged again.
    """
    prompt = _first(card.input)
    tokens = {
        "prompt": prompt,
        "completion": _first(card.output, card.image_output),
        "input_cache_read": _first(card.cached_input, prompt),
        "input_cache_write": _first(card.cache_write, prompt),
        "internal_reasoning": ZERO,
    }
    pieces = {"image": card.image, "request": card.request, "web_search": card.web_search}
    # Rare units, listed only for models with such a price.
    heard = {
        "audio": card.audio_input,
        "character": card.characters,
        "input_cache_write_1h": card.cache_write_1h,
        **{
            f"{word}_{tier}": getattr(prices, name)
            for tier, prices in card.service_tiers.items()
            for word, name in (("prompt", "input"), ("completion", "output"), ("input_cache_read", "cached_input"))
        },
    }
    tokens |= {name: price for name, price in heard.items() if price is not None}
    few = {
        "grounded_request": card.grounded_request,
        "search_unit": card.search_unit,
        "audio_minute": card.audio_minute,
    }
    pieces |= {name: price for name, price in few.items() if price is not None}
    return {name: plain(price.scaleb(_TO_ONE_TOKEN)) for name, price in tokens.items()} | {
        name: plain(_first(price)) for name, price in pieces.items()
    }


def _price_of(offer: Offer) -> tuple[bool, Decimal, str]:
    """Return the sort key of offers: by price, unpriced ones last, ties by the provider's id."""
    card = offer.prices
    tokens = _first(card.input) + _first(card.output, card.image_output)
    tokens += _first(card.characters)
    each = (card.image, card.request, card.search_unit, card.audio_minute)
    pieces = sum(map(_first, each), ZERO) * _PIECES
    return card.unpriced, tokens + pieces, offer.provider.id


def _parameters_of(model: CatalogModel, offers: Iterable[Offer]) -> list[str]:
    """Return the request fields that at least one of the offers supports."""
    understood: dict[str, None] = {}
    for offer in offers:
        refused = offer.facts.get("unsupported", ())
        understood |= dict.fromkeys(name for name in _fields_of(model, offer) if name not in refused)
    return sorted(understood)


def _fields_of(model: CatalogModel, offer: Offer) -> Iterable[str]:
    if model.mode == "chat":
        yield "max_tokens"
        if offer.temperature:
            yield from _SAMPLING
    if offer.json_output or offer.structured_outputs:
        yield "response_format"
    if offer.structured_outputs:
        yield "structured_outputs"
    if offer.tools:
        yield "tools"
    if offer.tool_choice:
        yield "tool_choice"
    if offer.parallel_tools:
        yield "parallel_tool_calls"
    if offer.reasoning:
        yield from ("reasoning", "reasoning_effort")
    if offer.web_search:
        yield "web_search"


def _description_of(model: CatalogModel, offers: Iterable[Offer]) -> str:
    """Return a description in two sentences, for models without their own."""
    kind = _KINDS.get(model.mode, model.mode)
    reads, writes = (_and(modalities) for modalities in (model.input_modalities, model.output_modalities))
    size = f", with a context of {model.context_length:,} tokens" if model.context_length else ""
    abilities = {
        "reasons": any(offer.reasoning for offer in offers),
        "calls tools": any(offer.tools for offer in offers),
        "searches the web": any(offer.web_search for offer in offers),
    }
    does = _and([ability for ability, has in abilities.items() if has])
    sentences = [f"{kind} model of the {model.family} family: reads {reads}, writes {writes}{size}."]
    return " ".join([*sentences, f"It {does}."] if does else sentences)


def _and(words: Sequence[str]) -> str:
    *others, last = words or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _first(*prices: Decimal | None) -> Decimal:
    return next((price for price in prices if price is not None), ZERO)
