"""Model listing in Google's format: Catalog -> the models of `GET /v1beta/models`, page by page. Pure.

A page ends with the id of its last model, so that models added or removed meanwhile do not shift pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from apps.catalog.offers import Catalog, CatalogModel, Offer

_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]
_CHAT = "chat"


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
