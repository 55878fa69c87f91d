"""A catalog small enough to hold in one's head."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from apps.catalog.offers import Catalog, CatalogModel, CatalogProvider, Offer
from apps.kernel.prices import PriceCard

FLAGS = ("vision", "tools", "parallel_tools", "tool_choice", "reasoning", "structured_outputs")
MORE_FLAGS = ("json_output", "web_search", "prompt_cache")


def provider(name: str, **changes: Any) -> CatalogProvider:
    """A provider that speaks OpenAI's format."""
    usual: dict[str, Any] = {
        "id": name,
        "name": name.capitalize(),
        "dialect": "openai",
        "auth": "bearer",
        "base_url": f"https://{name}.test/v1",
        "api_key_env": f"{name.upper()}_API_KEY",
        "facts": {},
        "priority": 1.0,
    }
    return CatalogProvider(**usual | changes)


def offer(at: str, model_id: str, **changes: Any) -> Offer:
    """An offer that can do nothing special, for 1 USD in and 2 USD out per million tokens."""
    usual: dict[str, Any] = {
        "provider": provider(at),
        "model_id": model_id,
        "model_name": model_id,
        "prices": PriceCard(input=Decimal(1), output=Decimal(2)),
        "context_length": 1000,
        "max_output": 100,
        "streaming": True,
        "cancellation": True,
        "temperature": True,
        "stability": "stable",
        "facts": {},
        "deprecated_at": None,
        "deactivated_at": None,
        "priority": 1.0,
        "active": True,
    }
    return Offer(**usual | dict.fromkeys(FLAGS + MORE_FLAGS, False) | changes)


def model(name: str, *offers: Offer, **changes: Any) -> CatalogModel:
    """A chat model."""
    usual: dict[str, Any] = {
        "id": name,
        "name": name.title(),
        "description": "",
        "family": "small",
        "owned_by": "",
        "mode": "chat",
        "aliases": (),
        "created": None,
        "context_length": None,
        "max_output": None,
        "input_modalities": ("text",),
        "output_modalities": ("text",),
        "facts": {},
        "offers": offers,
    }
    return CatalogModel(**usual | changes)


def catalog(*models: CatalogModel) -> Catalog:
    """The catalog of these models and everyone who offers them."""
    providers = {offer.provider.id: offer.provider for model in models for offer in model.offers}
    return Catalog({model.id: model for model in models}, providers, generation="small")
