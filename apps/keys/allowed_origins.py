"""Allowed origins (CORS) of all working API keys, for preflight requests, which carry no key."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import structlog
from django.db import DatabaseError

from apps.kernel.postgres import database
from apps.keys.models import ApiKey

log = structlog.get_logger(__name__)

# Maximum keys whose origins are cached, and the cache's lifetime in seconds.
_MAX_KEYS: Final = 10_000
_MAX_AGE: Final = 10.0


class _KnownOrigins:
    """The origins of working keys: read again when they are old, kept while the database does not answer."""

    def __init__(self) -> None:
        self._origins: frozenset[str] = frozenset()
        self._read_at: float | None = None

    def __contains__(self, origin: str) -> bool:
        if self._read_at is None or time.monotonic() - self._read_at > _MAX_AGE:
            # Concurrent requests get the old value meanwhile.
            self._read_at = time.monotonic()
            try:
                self._origins = database.read(partial(_read_origins), brief=True)
            except DatabaseError as error:
                log.warning("cors.origins_not_read", error=type(error).__name__)
        return origin in self._origins

    def forget(self) -> None:
        """Read them again on next use."""
        self._read_at = None


known_origins = _KnownOrigins()


def _read_origins() -> frozenset[str]:
    keys = ApiKey.objects.filter(status=ApiKey.Status.ACTIVE).exclude(allowed_origins=[])
    lists = keys.values_list("allowed_origins", flat=True)[:_MAX_KEYS]
    return frozenset(origin for origins in lists for origin in origins)
