"""`GET /metrics`: the metrics of all processes, rendered once for all who ask at the same time.

A rendering takes the time of dozens of requests and grows with the number of series, so it must not be a way to keep a
worker busy: scrapes that arrive together share a rendering, and after each one a worker serves others for a while.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView
from prometheus_client import CONTENT_TYPE_LATEST

from apps.catalog import metrics as catalog_metrics
from apps.gateway.metrics import flush_to_prometheus
from apps.kernel.concurrency.single_flight import SingleFlight
from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.request_headers import find_bearer
from apps.log_sinks import metrics as log_sink_metrics
from gateway_project.observability import task_metrics

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
    return text + task_metrics.exposition() + log_sink_metrics.exposition() + catalog_metrics.exposition()


_rendering = PacedRendering(_render)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the metrics of all processes; behind `METRICS_TOKEN` when that is set. Raises Unauthenticated."""
    token = find_bearer(request.headers.get("Authorization")) or ""
    if settings.METRICS_TOKEN and not secrets.compare_digest(token.encode(), settings.METRICS_TOKEN.encode()):
        raise Unauthenticated("Missing or invalid metrics token")
    return HttpResponse(_rendering(), content_type=CONTENT_TYPE_LATEST)
