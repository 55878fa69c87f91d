"""Catalog cache of this process, renewed when the generation token changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

import structlog
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.catalog.catalog_reader import read_catalog
from apps.catalog.offers import Catalog, CatalogModel, CatalogProvider, Offer
from apps.kernel.concurrency.background import run_in_background
from apps.kernel.valkey import generation

__all__ = ["Catalog", "CatalogCache", "CatalogModel", "CatalogProvider", "Offer", "current", "process_copy", "refresh"]

log = structlog.get_logger(__name__)

# Seconds after which a copy is compared with the generation without a notification; a copy in use is compared in the
# background the second number of seconds earlier.
MAX_AGE = 60.0
RENEWED_BEFORE = 12.0
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
        self._trusted_until = time.monotonic() + MAX_AGE
        return catalog


def _read_token() -> str | None:
    try:
        return generation.read_generation_token(generation.CATALOG)
    except RedisError as error:
        log.warning("catalog.generation_unknown", error=str(error))
        return None


process_copy = CatalogCache(read_catalog, _read_token)
current, refresh = process_copy.current, process_copy.refresh
