"""The catalog's data files in the tables, loaded once a run: a load takes longer than most tests.

As on one day: what its provider ends later has no end here, so that no test fails on the day when a model ends.
"""

from __future__ import annotations

from copy import copy
from datetime import date
from typing import Any

from apps.catalog import catalog_cache
from apps.catalog.load import load
from apps.catalog.models import ModelProvider, Provider
from apps.kernel.valkey import generation

AS_OF = date(2026, 11, 29)


def stock() -> None:
    """Load the data files, unless they are there: tests that commit empty every table after themselves."""
    if not Provider.objects.exists():
        load()
        _remove_later_ends()
        # In a test that does not commit nothing else invalidates the caches of other processes.
        generation.bump(generation.CATALOG)
    # This process may hold the tables of another test, and would use them for a minute. They are read again at the next
    # use, not here: a test may add rows of its own first.
    catalog_cache.process_copy.distrust()


def stock_with_ends() -> None:
    """Stock the catalog with every end that the data files state, for tests of the load itself."""
    stock()
    ModelProvider.objects.bulk_update(_as_stated, _WITH_ENDS)


# The rows whose later ends were removed, as the load wrote them.
_as_stated: list[ModelProvider] = []
_WITH_ENDS = ["deactivated_at", "facts"]


def _remove_later_ends() -> None:
    _as_stated[:] = [row for row in ModelProvider.objects.all() if _ends_later(row)]
    changed = [copy(row) for row in _as_stated]
    for row in changed:
        if _is_later(str(row.deactivated_at or "")):
            row.deactivated_at = None
        if "editions" in row.facts:
            row.facts = {**row.facts, "editions": [_without_later_end(one) for one in row.facts["editions"]]}
    ModelProvider.objects.bulk_update(changed, _WITH_ENDS)


def _ends_later(row: ModelProvider) -> bool:
    ends = [row.deactivated_at or "", *(one.get("deactivated", "") for one in row.facts.get("editions", []))]
    return any(_is_later(str(end)) for end in ends)


def _without_later_end(edition: dict[str, Any]) -> dict[str, Any]:
    ends_later = _is_later(edition.get("deactivated", ""))
    return {name: value for name, value in edition.items() if not (ends_later and name == "deactivated")}


def _is_later(day: str) -> bool:
    return day > AS_OF.isoformat()
