"""Checks whether stores answer, for `GET /` and readiness: bounded in time, and shared by concurrent callers.

Findings contain no address, credential or setting, because the caller may be anyone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Lock, Thread

import psycopg
import structlog
from django.conf import settings
from django.db import connection

from apps.kernel.store_urls import address_of
from apps.kernel.valkey.redis import cache_servers, servers_of_money
from gateway_project.diagnosis.check import Check, Diagnosis

log = structlog.get_logger(__name__)

# Seconds that a store may take; the checks run side by side.
PATIENCE = 2.0
# Seconds for which a check's result answers further requests: the endpoint takes no key, and a check of the database
# costs a connection.
REUSED = 1.0


def find_redis() -> Iterator[Diagnosis]:
    """Yield that Valkey answers. Raises RedisError."""
    for server in servers_of_money():
        server.ping()
    yield Diagnosis.ok("redis", "Reachable")


def find_database() -> Iterator[Diagnosis]:
    """Yield that PostgreSQL answers, over a connection of its own: busy ones cannot hold up the answer.

    Raises psycopg.Error.
    """
    with psycopg.connect(**{**connection.get_connection_params(), "connect_timeout": 2}) as direct:
        # In a transaction: PgBouncer need not take it as an option of the connection.
        direct.execute("SELECT set_config('statement_timeout', '1000', true)")
        direct.execute("SELECT 1")
    yield Diagnosis.ok("database", "Reachable")


def find_cache() -> Iterator[Diagnosis]:
    """Yield nothing if the cache answers, or has no server of its own. Raises RedisError."""
    if settings.CACHE_URL != settings.REDIS_URL:
        for server in cache_servers():
            server.ping()
    yield from ()


class Run(Thread):
    """One run of a check, shared by all callers meanwhile; one that hangs is given up after PATIENCE seconds."""

    def __init__(self, check: Check) -> None:
        super().__init__(name=f"health-{check.name}", daemon=True)
        self._check = check
        self._findings = [self._failure(f"No answer within {PATIENCE:g} seconds")]
        self._deadline = time.monotonic() + PATIENCE
        self._ended: float | None = None

    def run(self) -> None:
        """Make the check."""
        try:
            self._findings = list(self._check.find())
        except Exception as error:  # noqa: BLE001 - any error of the store is the result of the check
            name = self._check.name
            log.warning("health.failed", check=name, store=_address_of(name), error=type(error).__name__)
            self._findings = [self._failure("Not reachable")]
        self._ended = time.monotonic()

    @property
    def is_current(self) -> bool:
        """Whether it is under way, or ended less than REUSED seconds ago."""
        return self._ended is None or time.monotonic() - self._ended < REUSED

    def wait(self) -> list[Diagnosis]:
        """Return the findings once it has ended, or PATIENCE seconds after it began."""
        self.join(max(0.0, self._deadline - time.monotonic()))
        return self._findings

    def _failure(self, message: str) -> Diagnosis:
        if self._check.optional:
            return Diagnosis.warning(self._check.name, f"Not reachable: {self._check.optional}")
        return Diagnosis.error(self._check.name, message)


class SharedRuns:
    """The latest run of each check: at most one is under way in a process, however many ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._latest: dict[str, Run] = {}

    def current(self, check: Check) -> Run:
        """Return the check's run that is under way or has just ended, else a new one."""
        with self._lock:
            run = self._latest.get(check.name)
            if run is None or not run.is_current:
                run = self._latest[check.name] = Run(check)
                run.start()
            return run

    def forget(self) -> None:
        """Let the next caller make each check again."""
        with self._lock:
            self._latest.clear()


SHARED_RUNS = SharedRuns()


def _address_of(name: str) -> str:
    """Return the address of a store, for the log alone."""
    if name in ("redis", "cache"):
        return address_of(settings.REDIS_URL if name == "redis" else settings.CACHE_URL)
    known = connection.settings_dict
    return f"{known['HOST'] or 'localhost'}:{known['PORT'] or 5432}"
