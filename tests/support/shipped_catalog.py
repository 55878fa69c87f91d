"""The catalog's data files in the tables, loaded once a run: a load takes longer than most tests."""

from __future__ import annotations

from apps.catalog import catalog_cache
from apps.catalog.load import load
from apps.catalog.models import Provider
from apps.kernel.valkey import generation


def stock() -> None:
    """Load the data files, unless they are there: tests that commit empty every table after themselves."""
    if not Provider.objects.exists():
        load()
        # In a test that does not commit nothing else invalidates the caches of other processes.
        generation.bump(generation.CATALOG)
    # This process may hold the tables of another test, and would use them for a minute. They are read again at the next
    # use, not here: a test may add rows of its own first.
    catalog_cache.process_copy.distrust()
