"""Allowed origins (CORS): all that working API keys name, for browsers that ask before they bring a key.

Must never know which request asks, nor which key names an origin.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import structlog
from django.db import DatabaseError

from apps.kernel import database
from apps.keys.models import ApiKey

log = structlog.get_logger(__name__)

# Keys whose origins are remembered, and seconds for which they are.
_MOST_KEYS: Final = 10_000
_MAX_AGE: Final = 10.0


class _KnownOrigins:
    """The origins that working keys name: read again when they are asked for and are old, kept while nobody answers."""

    def __init__(self) -> None:
        self._origins: frozenset[str] = frozenset()
        self._read_at: float | None = None

    def __contains__(self, origin: str) -> bool:
        if self._read_at is None or time.monotonic() - self._read_at > _MAX_AGE:
            # Others that ask meanwhile get what was known.
            self._read_at = time.monotonic()
            try:
                self._origins = database.read(partial(_read_origins), brief=True)
            except DatabaseError as error:
                log.warning("cors.origins_not_read", error=type(error).__name__)
        return origin in self._origins

    def forget(self) -> None:
        """Read them again when they are asked for."""
        self._read_at = None


known_origins = _KnownOrigins()


def _read_origins() -> frozenset[str]:
    keys = ApiKey.objects.filter(status=ApiKey.Status.ACTIVE).exclude(allowed_origins=[])
    lists = keys.values_list("allowed_origins", flat=True)[:_MOST_KEYS]
    return frozenset(origin for origins in lists for origin in origins)
