"""Health and metrics: `GET /`, `GET /livez`, `GET /readyz` and `GET /metrics`.

`GET /` tells whether this process reaches its stores; `/livez`, whether it is alive; `/readyz`, whether it should get
requests. A node gets none while it drains, until it has reached its stores once, and while it cannot keep records. An
outage of a shared store does not make all nodes unready at once: each continues to serve as far as that is safe.

`/metrics` has the metrics of all processes, rendered once for all who ask at the same time. A rendering takes the time
of dozens of requests and grows with the number of series, so it must not be a way to keep a worker busy: scrapes that
arrive together share a rendering, and after each one a worker serves others for a while.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView
from prometheus_client import CONTENT_TYPE_LATEST

from apps.alerts import metrics as alert_metrics
from apps.catalog import metrics as catalog_metrics
from apps.console.pages.welcome import welcome
from apps.gateway.metrics import flush_to_prometheus
from apps.gateway.settlement.record_backlog import is_any_process_backlogged
from apps.kernel.concurrency.single_flight import SingleFlight
from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.request_headers import find_bearer, prefers_page
from apps.log_sinks import metrics as log_sink_metrics
from gateway_project.diagnosis.check import Diagnosis, State
from gateway_project.diagnosis.registry import examine_health
from gateway_project.observability import task_metrics
from gateway_project.processes import draining


@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """Answer 200 when every check that is not in `skip` succeeds, 503 otherwise; a skipped check is left out."""
    found = examine_health({word.strip() for word in request.GET.get("skip", "").split(",")})
    failed = [one.subject for one in found if one.is_error]
    body = {
        "message": f"Failed: {', '.join(failed)}" if failed else "OK",
        "version": settings.VERSION,
        "health": {"status": "error" if failed else "ok", **{one.subject: _as_json(one) for one in found}},
    }
    return JsonResponse(body, status=503 if failed else 200)


def _as_json(finding: Diagnosis) -> dict[str, object]:
    """Return a finding: `connected`, whether requests are taken all the same, with an error or a warning."""
    if finding.state is State.OK:
        return {"connected": True}
    return {"connected": not finding.is_error, finding.state.value: finding.message}


class _Readiness:
    """State of one process: once it has reached its stores, their outages no longer make it unready."""

    def __init__(self, check: Callable[[], Iterable[Diagnosis]]) -> None:
        self._check = check
        self._has_reached_stores = False

    def why_not(self) -> str | None:
        """Return why no requests should be sent here, None when they should."""
        if draining.is_node_draining():
            return "draining"
        if not self._has_reached_stores:
            if any(one.is_error for one in self._check()):
                return "starting"
            self._has_reached_stores = True
        return "records" if is_any_process_backlogged() else None


# Requests are answered without the cache.
_READINESS = _Readiness(partial(examine_health, ("cache",)))


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """Answer 200: to answer is to be alive. No store is asked, so that no outage has nodes started again."""
    return JsonResponse({"status": "alive"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when requests should be sent here, else 503 and why not: `draining`, `starting` or `records`."""
    reason = _READINESS.why_not()
    return JsonResponse({"status": reason or "ready"}, status=503 if reason else 200)


@require_safe
def front_door(request: HttpRequest) -> HttpResponse | HttpResponseBase:
    """Answer with a page where one is preferred and nothing is asked of the health check."""
    is_page = prefers_page(request.headers.get("Accept", "")) and "skip" not in request.GET
    return welcome(request) if is_page else health(request)


# A rendering may take a quarter of a worker's time; no scrape waits longer than MAX_PAUSE seconds for its turn.
_PAUSE_FACTOR: Final = 3
MAX_PAUSE: Final = 1.0
# Seconds that a scrape waits for a rendering that another one started: Prometheus gives up after ten.
_PATIENCE: Final = 10.0


class PacedRendering:
    """Runs `render` once for all callers that wait, and after each run pauses three times as long as the run took."""

    def __init__(
        self,
        render: Callable[[], bytes],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._render, self._clock, self._sleep = render, clock, sleep
        self._flights: SingleFlight[None, bytes] = SingleFlight(_PATIENCE)
        self._next_at = 0.0

    def __call__(self) -> bytes:
        """Return the rendered text. Raises what `render` raises, and TimeoutError."""
        return self._flights.run(None, self._in_turn)

    def _in_turn(self) -> bytes:
        if (pause := self._next_at - self._clock()) > 0:
            self._sleep(pause)
        began = self._clock()
        try:
            return self._render()
        finally:
            ended = self._clock()
            self._next_at = ended + min(_PAUSE_FACTOR * (ended - began), MAX_PAUSE)


def _render() -> bytes:
    flush_to_prometheus()
    text: bytes = ExportToDjangoView(None).content
    parts = (task_metrics, log_sink_metrics, alert_metrics, catalog_metrics)
    return text + b"".join(part.exposition() for part in parts)


_rendering = PacedRendering(_render)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the metrics of all processes; behind `METRICS_TOKEN` when that is set. Raises Unauthenticated."""
    token = find_bearer(request.headers.get("Authorization")) or ""
    if settings.METRICS_TOKEN and not secrets.compare_digest(token.encode(), settings.METRICS_TOKEN.encode()):
        raise Unauthenticated("Missing or invalid metrics token")
    return HttpResponse(_rendering(), content_type=CONTENT_TYPE_LATEST)
