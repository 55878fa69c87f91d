"""Hook of provider keys: the providers of the catalog."""

from __future__ import annotations

from apps.catalog import catalog_cache
from apps.catalog.offers import CatalogProvider


def find_provider(provider_id: str) -> CatalogProvider | None:
    """Return a provider of the catalog; None for one that there is not."""
    return catalog_cache.current().providers.get(provider_id)
