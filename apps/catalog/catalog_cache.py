"""Catalog cache of this process, renewed when the generation token changes, and how it is read: rows -> an immutable
Catalog, with overrides applied, addresses resolved, and without unusable rows.

`<ID>_BASE_URL` in the environment overrides an address.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from threading import Lock
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.catalog import models
from apps.catalog.billed_prices import base_url_of, bill_prices, find_factor
from apps.catalog.offers import Catalog, CatalogModel, CatalogProvider, Offer
from apps.kernel.concurrency.background import run_in_background
from apps.kernel.concurrency.native_thread_pool import beside_requests
from apps.kernel.postgres import database
from apps.kernel.valkey import generation

_COPIED = (
    *("model_id", "model_name", "context_length", "max_output", "streaming", "cancellation", "vision", "tools"),
    *("parallel_tools", "tool_choice", "reasoning", "structured_outputs", "json_output", "web_search"),
    *("prompt_cache", "temperature", "stability"),
)


_MAPPING_FIELDS = (
    *("provider_id", "active", "prices", "price_overrides", "facts", "priority", "deprecated_at", "deactivated_at"),
    *_COPIED,
)


def read_catalog(generation: str) -> Catalog:
    """Return the current catalog, under the generation token that was read before the rows.

    Three queries; the database connection is released. Raises DatabaseError.
    """
    rows = database.read(_read_rows)
    # A tenth of a second of computing.
    return beside_requests(lambda: _catalog_of(*rows, generation))


def _catalog_of(
    mappings: Sequence[Any],
    entries: Mapping[str, models.Model],
    sources: Mapping[str, models.Provider],
    generation: str,
) -> Catalog:
    """Return the catalog of rows; mappings are named tuples of `_MAPPING_FIELDS`."""
    providers = {row.id: _provider_of(row) for row in sources.values()}
    offers: dict[str, list[Offer]] = defaultdict(list)
    for row in mappings:
        source, entry = sources.get(row.provider_id), entries.get(row.model_id)
        if source and entry:
            active = row.active and source.active and entry.active
            offers[entry.id] += _offers_of(row, entry, providers[source.id], active=active)
    kept = {row.id: _model_of(row, offers[row.id]) for row in entries.values() if offers[row.id]}
    return Catalog(models=kept, providers=providers, generation=generation)


def _read_rows() -> tuple[Sequence[Any], dict[str, models.Model], dict[str, models.Provider]]:
    # Mappings first: the rows that they refer to then exist, or were deleted meanwhile, which voids the mapping. There
    # are many, and a tuple takes a third of the time of a model's instance.
    mappings = list(models.ModelProvider.objects.order_by("provider_id").values_list(*_MAPPING_FIELDS, named=True))
    entries = {row.id: row for row in models.Model.objects.order_by("id")}
    sources = {row.id: row for row in models.Provider.objects.order_by("id") if _is_usable(row)}
    return mappings, entries, sources


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


def _offers_of(row: Any, entry: models.Model, provider: CatalogProvider, *, active: bool) -> list[Offer]:
    """Return the offer; none if its prices cannot be read, which is better than wrong bills."""
    facts = {**provider.facts, **row.facts}
    try:
        factor = find_factor(row.model_id, provider.base_url, facts.pop("address_factors", ()))
        billed = bill_prices(row.prices, row.price_overrides, factor, facts.pop("editions", ()))
    except (ValueError, TypeError) as error:
        log.error("catalog.prices_unreadable", mapping=f"{row.provider_id}/{row.model_id}", error=str(error))
        return []
    if row.price_overrides:
        # An operator's price goes before a provider's word.
        facts["states_cost"] = False
    copied = {name: getattr(row, name) for name in _COPIED}
    copied["deprecated_at"] = _earlier(row.deprecated_at, entry.retiring_on)
    copied["deactivated_at"] = _earlier(row.deactivated_at, entry.retired_on)
    copied |= {"prices": billed.card, "facts": facts, "priority": float(row.priority)}
    usual = Offer(provider=provider, active=active, **copied)
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
        for one, card in billed.editions
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
        created=None if released is None else int(datetime.combine(released, time_of_day(), UTC).timestamp()),
        context_length=row.context_length,
        max_output=row.max_output,
        input_modalities=tuple(row.input_modalities),
        output_modalities=tuple(row.output_modalities),
        facts=row.facts,
        offers=tuple(offers),
    )


__all__ = ["Catalog", "CatalogCache", "CatalogModel", "CatalogProvider", "Offer", "current", "process_copy", "refresh"]

log = structlog.get_logger(__name__)

# Seconds after which a copy is compared with the generation before it is used; a copy in use is compared in the
# background the second number of seconds earlier, so that listings show a change of prices within seconds. Requests do
# not wait for that: the store refuses an older generation.
MAX_AGE = 15.0
RENEWED_BEFORE = 12.0
# The same while Redis does not tell the generation: each time the rows are read again.
MAX_AGE_IN_AN_OUTAGE = 60.0
# Seconds for which a copy stays in use after a failed renewal.
PAUSE_AFTER_FAILURE = 5.0


class CatalogCache:
    """One copy, read by one greenlet at a time. `read_token` returns None if Redis is down."""

    def __init__(self, read: Callable[[str], Catalog], read_token: Callable[[], str | None]) -> None:
        self.read = read
        self._read_token = read_token
        self._lock = Lock()
        self._catalog: Catalog | None = None
        self._trusted_until = 0.0
        self._failed_until = 0.0
        self._failure: Exception | None = None

    def current(self) -> Catalog:
        """Return the copy, read now if there is none. Raises DatabaseError if there is none and it cannot be read."""
        catalog = self._catalog
        if catalog is None:
            asked_at = time.monotonic()
            with self._lock:
                if self._catalog is None and asked_at < self._failed_until and self._failure is not None:
                    # The first waiter has tried for all of them, so that timeouts do not add up.
                    raise self._failure
                return self._catalog or self._renew()
        now = time.monotonic()
        if now < self._trusted_until - RENEWED_BEFORE or not self._lock.acquire(blocking=False):
            return catalog
        # The first greenlet that finds the copy old renews it; others use the old one meanwhile.
        if now >= self._trusted_until:
            return self._renew_alone()
        run_in_background(self._renew_alone)
        return catalog

    def refresh(self, token: str) -> Catalog:
        """Return the copy if it was read under `token`, else one that is not older than this call.

        If reading fails, the current copy stays. Raises DatabaseError without one.
        """
        asked_at = time.monotonic()
        catalog = self._catalog
        if catalog is not None and generation.covers(catalog.generation, token):
            return catalog
        with self._lock:
            # Others may have waited for the lock too: the first has read, or tried to, for all of them.
            catalog = self._catalog
            if catalog is not None and (generation.covers(catalog.generation, token) or asked_at < self._failed_until):
                return catalog
            return self._renew()

    def distrust(self) -> None:
        """Compare the copy with the generation at its next use."""
        self._trusted_until = 0.0

    def _renew_alone(self) -> Catalog:
        """Read the rows unless the generation is unchanged, and release the lock."""
        try:
            return self._renew()
        finally:
            self._lock.release()

    def _renew(self) -> Catalog:
        """Read the rows unless the generation is unchanged; the lock is held."""
        catalog = self._catalog
        # Token before rows: a change in between makes the copy stale, never wrongly fresh.
        token = self._read_token()
        if catalog is None or catalog.generation != token:
            try:
                catalog = self.read(token or generation.new_generation_token())
            except Exception as error:
                if catalog is None:
                    self._failed_until, self._failure = time.monotonic(), error
                    raise
                if isinstance(error, DatabaseError):
                    log.warning("catalog.not_read", error=type(error).__name__)
                else:
                    log.exception("catalog.not_read")
                self._failed_until = self._trusted_until = time.monotonic() + PAUSE_AFTER_FAILURE
                return catalog
        self._catalog = catalog
        self._trusted_until = time.monotonic() + (MAX_AGE_IN_AN_OUTAGE if token is None else MAX_AGE)
        return catalog


def _read_token() -> str | None:
    try:
        return generation.read_generation_token(generation.CATALOG)
    except RedisError as error:
        log.warning("catalog.generation_unknown", error=str(error))
        return None


process_copy = CatalogCache(read_catalog, _read_token)
current, refresh = process_copy.current, process_copy.refresh
