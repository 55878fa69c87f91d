"""The catalog as it was read before, for as long as its rows are the same: to read it takes longer than most tests.

Knows how to tell that no row has changed. Must never know what is tested.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db import connection

from apps.catalog import models
from apps.catalog.offers import Catalog
from apps.kernel import database

# A row's place and the transaction that wrote it: no two versions of rows share both.
_VERSIONS = "SELECT " + ", ".join(
    f"(SELECT sum(hashtextextended(ctid::text || '.' || xmin::text, 0)) FROM {table._meta.db_table})"
    for table in (models.Provider, models.Model, models.ModelProvider)
)


def remember(read: Callable[[str], Catalog]) -> Callable[[str], Catalog]:
    """Return a reader that asks `read` only when rows, settings or the environment differ from the last time."""
    last: list[tuple[Any, Catalog]] = []

    def read_or_recall(generation: str) -> Catalog:
        key = (database.read(_versions), settings.DEVELOPMENT, {**os.environ, "PYTEST_CURRENT_TEST": ""})
        if not last or last[0][0] != key:
            last[:] = [(key, read(generation))]
        return replace(last[0][1], generation=generation)

    return read_or_recall


def _versions() -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(_VERSIONS)
        return tuple(cursor.fetchone())
