"""Catalog reader: rows -> an immutable Catalog, with overrides applied, addresses resolved, and without unusable rows.

`<ID>_BASE_URL` in the environment overrides an address.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

import structlog
from django.conf import settings

from apps.catalog import models
from apps.catalog.offers import Catalog, CatalogModel, CatalogProvider, Offer
from apps.catalog.price_cards import read_card, read_editions
from apps.kernel.postgres import database

log = structlog.get_logger(__name__)

_COPIED = (
    *("model_id", "model_name", "context_length", "max_output", "streaming", "cancellation", "vision", "tools"),
    *("parallel_tools", "tool_choice", "reasoning", "structured_outputs", "json_output", "web_search"),
    *("prompt_cache", "temperature", "stability"),
)


def read_catalog(generation: str) -> Catalog:
    """Return the current catalog, under the generation token that was read before the rows.

    Three queries; the database connection is released. Raises DatabaseError.
    """
    mappings, entries, sources = database.read(_read_rows)
    providers = {row.id: _provider_of(row) for row in sources.values()}
    offers: dict[str, list[Offer]] = defaultdict(list)
    for row in mappings:
        source, entry = sources.get(row.provider_id), entries.get(row.model_id)
        if source and entry:
            active = row.active and source.active and entry.active
            offers[entry.id] += _offers_of(row, entry, providers[source.id], active=active)
    kept = {row.id: _model_of(row, offers[row.id]) for row in entries.values() if offers[row.id]}
    return Catalog(models=kept, providers=providers, generation=generation)


def _read_rows() -> tuple[list[models.ModelProvider], dict[str, models.Model], dict[str, models.Provider]]:
    # Mappings first: the rows that they refer to then exist, or were deleted meanwhile, which voids the mapping.
    mappings = list(models.ModelProvider.objects.order_by("provider_id"))
    entries = {row.id: row for row in models.Model.objects.order_by("id")}
    sources = {row.id: row for row in models.Provider.objects.order_by("id") if _is_usable(row)}
    return mappings, entries, sources


def base_url_of(provider_id: str, stated: str, variables: Mapping[str, Any] | None = None) -> str:
    """Return a provider's address without a trailing slash: `<ID>_BASE_URL` of the environment, else the stated one.

    Placeholders are filled from the environment as `variables` defines; unresolved ones stay.
    """
    variable = f"{provider_id.upper().replace('-', '_')}_BASE_URL"
    address = os.environ.get(variable) or stated
    for name, source in (variables or {}).items():
        found = next((value for env in source["env"] if (value := os.environ.get(env))), source.get("default"))
        if found:
            address = address.replace(f"{{{name}}}", found)
    return address.rstrip("/")


def _is_usable(row: models.Provider) -> bool:
    return settings.DEVELOPMENT or not row.facts.get("development_only")


def _provider_of(row: models.Provider) -> CatalogProvider:
    return CatalogProvider(
        id=row.id,
        name=row.name,
        dialect=row.dialect,
        auth=row.auth,
        base_url=base_url_of(row.id, row.base_url, row.facts.get("variables")),
        api_key_env=row.api_key_env,
        facts=row.facts,
        priority=float(row.priority),
    )


def _offers_of(
    row: models.ModelProvider, entry: models.Model, provider: CatalogProvider, *, active: bool
) -> list[Offer]:
    """Return the offer; none if its prices cannot be read, which is better than wrong bills."""
    facts = {**provider.facts, **row.facts}
    try:
        prices = read_card(row.prices | row.price_overrides)
        if row.price_overrides:
            # An operator's price goes before a provider's word.
            facts["states_cost"] = False
        editions = [(one, one.card(prices)) for one in read_editions(facts.pop("editions", ()))]
    except (ValueError, TypeError) as error:
        log.error("catalog.prices_unreadable", mapping=str(row), error=str(error))
        return []
    copied = {name: getattr(row, name) for name in _COPIED}
    copied["deprecated_at"] = _earlier(row.deprecated_at, entry.retiring_on)
    copied["deactivated_at"] = _earlier(row.deactivated_at, entry.retired_on)
    usual = Offer(provider=provider, prices=prices, facts=facts, priority=float(row.priority), active=active, **copied)
    offers = [
        replace(
            usual,
            is_edition=True,
            model_name=one.names[0],
            prices=card,
            facts={**facts, "aliases": one.names[1:]},
            context_length=one.context or usual.context_length,
            max_output=one.max_output or usual.max_output,
            deprecated_at=_earlier(one.deprecated or row.deprecated_at, entry.retiring_on),
            deactivated_at=_earlier(one.deactivated or row.deactivated_at, entry.retired_on),
        )
        for one, card in editions
    ]
    return [replace(usual, editions=tuple(offers))]


def _earlier(*days: date | None) -> date | None:
    return min((day for day in days if day is not None), default=None)


def _model_of(row: models.Model, offers: list[Offer]) -> CatalogModel:
    released = row.released_on
    return CatalogModel(
        id=row.id,
        name=row.name,
        description=row.description,
        family=row.family,
        owned_by=row.owned_by,
        mode=row.mode,
        aliases=tuple(row.aliases),
        created=None if released is None else int(datetime.combine(released, time(), UTC).timestamp()),
        context_length=row.context_length,
        max_output=row.max_output,
        input_modalities=tuple(row.input_modalities),
        output_modalities=tuple(row.output_modalities),
        facts=row.facts,
        offers=tuple(offers),
    )
