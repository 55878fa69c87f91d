"""Health check, `GET /`: can this process reach its stores? Metrics, `GET /metrics`: what all processes have counted.

Each check has a time limit. Results contain no address, credential or setting, because the caller may be anyone.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from threading import Lock, Thread
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView

from apps.gateway.metrics import buffer
from apps.gateway.settlement import disk_space
from apps.gateway.settlement.record_backlog import is_any_process_backlogged
from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.bearer import find_bearer
from apps.kernel.valkey.redis import cache_servers, servers_of_money
from apps.kernel.valkey.store_address import address_of
from apps.log_sinks import metrics as log_sink_metrics
from gateway_project.observability import task_metrics

log = structlog.get_logger(__name__)

# Seconds that a store may take; the checks run side by side.
PATIENCE = 2.0
# Seconds for which a check's result answers further requests: the endpoint takes no key, and a check of the database
# costs a connection.
REUSED = 1.0


def _ask_redis() -> None:
    for server in servers_of_money():
        server.ping()


def _ask_database() -> None:
    """Over a connection of its own, so that busy ones cannot hold up the answer."""
    with psycopg.connect(**{**connection.get_connection_params(), "connect_timeout": 2}) as direct:
        # In a transaction: PgBouncer need not take it as an option of the connection.
        direct.execute("SELECT set_config('statement_timeout', '1000', true)")
        direct.execute("SELECT 1")


def _ask_cache() -> None:
    for server in cache_servers():
        server.ping()


CHECKS: dict[str, Callable[[], None]] = {"redis": _ask_redis, "database": _ask_database}


def _address_of(subject: str) -> str:
    """Return where a store is, for the log alone."""
    if subject in ("redis", "cache"):
        return address_of(settings.REDIS_URL if subject == "redis" else settings.CACHE_URL)
    known = connection.settings_dict
    return f"{known['HOST'] or 'localhost'}:{known['PORT'] or 5432}"


def _troubles() -> dict[str, dict[str, Any]]:
    """Return what this machine's own disk and memory have to tell, if anything; `connected` is whether requests are
    taken all the same."""
    troubles: dict[str, dict[str, Any]] = {}
    if is_any_process_backlogged():
        error = "Records cannot be stored: neither the store nor the disk takes them, and new requests are refused"
        troubles["records"] = {"connected": False, "error": error}
    if disk_space.is_low():
        troubles["disk"] = {"connected": True, "warning": "Little space is left"}
    return troubles


class _Check(Thread):
    """One question to a store, shared by all callers meanwhile; one that hangs is given up after PATIENCE seconds."""

    def __init__(self, name: str, ask: Callable[[], None]) -> None:
        super().__init__(name=f"health-{name}", daemon=True)
        self.subject, self._ask = name, ask
        self.error: str | None = f"No answer within {PATIENCE:g} seconds"
        self._deadline = time.monotonic() + PATIENCE
        self._ended: float | None = None

    def run(self) -> None:
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 - any error of the store is the result of the check
            log.warning(
                "health.failed", check=self.subject, store=_address_of(self.subject), error=type(error).__name__
            )
            self.error = "Not reachable"
        else:
            self.error = None
        self._ended = time.monotonic()

    @property
    def is_current(self) -> bool:
        """Whether it is under way, or ended less than REUSED seconds ago."""
        return self._ended is None or time.monotonic() - self._ended < REUSED

    def wait(self) -> None:
        """Wait until it ends, or until PATIENCE seconds have passed since it began."""
        self.join(max(0.0, self._deadline - time.monotonic()))

    def result(self) -> dict[str, Any]:
        """Return the check as JSON."""
        error = self.error
        return {"connected": True} if error is None else {"connected": False, "error": error}


class _SharedChecks:
    """The latest check of each store: at most one is under way in a process, however many ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._latest: dict[str, _Check] = {}

    def current(self, name: str, ask: Callable[[], None]) -> _Check:
        """Return the store's check that is under way or has just ended, else a new one."""
        with self._lock:
            check = self._latest.get(name)
            if check is None or not check.is_current:
                check = self._latest[name] = _Check(name, ask)
                check.start()
            return check

    def forget(self) -> None:
        """Let the next request ask each store again."""
        with self._lock:
            self._latest.clear()


shared_checks = _SharedChecks()


def check_stores(skipped: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return what each check that is not skipped finds, within PATIENCE: `connected`, and an error or warning.

    Concurrent callers share one check of each store, and its result serves for REUSED seconds more.
    """
    checks = [shared_checks.current(name, ask) for name, ask in CHECKS.items() if name not in skipped]
    # Requests are answered without it, so its absence is reported as a warning.
    has_cache = "cache" not in skipped and settings.CACHE_URL != settings.REDIS_URL
    cache = shared_checks.current("cache", _ask_cache) if has_cache else None
    for check in checks:
        check.wait()
    results = {check.subject: check.result() for check in checks}
    if cache is not None:
        cache.wait()
        if cache.error is not None:
            results["cache"] = {"connected": True, "warning": "Not reachable: answers are not kept"}
    return results | {name: trouble for name, trouble in _troubles().items() if name not in skipped}


@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """Answer 200 when every check that is not in `skip` succeeds, 503 otherwise; a skipped check is left out."""
    results = check_stores({word.strip() for word in request.GET.get("skip", "").split(",")})
    failed = [subject for subject, result in results.items() if not result["connected"]]
    body = {
        "message": f"Failed: {', '.join(failed)}" if failed else "OK",
        "version": settings.VERSION,
        "health": {"status": "error" if failed else "ok", **results},
    }
    return JsonResponse(body, status=503 if failed else 200)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the metrics of all processes; behind `METRICS_TOKEN` when that is set. Raises Unauthenticated."""
    token = find_bearer(request.headers.get("Authorization")) or ""
    if settings.METRICS_TOKEN and not secrets.compare_digest(token.encode(), settings.METRICS_TOKEN.encode()):
        raise Unauthenticated("Missing or invalid metrics token")
    buffer.flush_to_prometheus()
    response: HttpResponse = ExportToDjangoView(request)
    response.write(task_metrics.exposition())
    response.write(log_sink_metrics.exposition())
    return response
