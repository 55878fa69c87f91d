"""OTLP metrics: what Prometheus would read, of all processes of this folder of metrics, sent to a collector instead.

One process of each folder sends, whichever holds its lock: counts are sums over all of them already. Beside them go the
durations and tokens of requests in the names of OpenTelemetry's conventions for generative AI.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import IO

import requests
import structlog
from django.conf import settings
from prometheus_client import REGISTRY, CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

from apps.gateway import metrics
from apps.gateway.metrics import labeled_child, observe, provider_label, tell
from apps.gateway.tracing import otlp, wire
from apps.logs.entry import Entry
from apps.logs.genai_names import operation_of_route, provider_name

log = structlog.get_logger(__name__)

# Metrics of the conventions' own names, and their units.
_NAMES = {
    "gen_ai_client_operation_duration_seconds": ("gen_ai.client.operation.duration", "s"),
    "gen_ai_client_token_usage": ("gen_ai.client.token.usage", "{token}"),
}

# Numbers of a metric's fields, and the flags of a count: cumulative and monotonic.
_GAUGE, _SUM, _HISTOGRAM = 5, 7, 9
_CUMULATIVE, _MONOTONIC = wire.integer(2, 2), wire.integer(3, 1)


def begin() -> None:
    """Have this process's folder of metrics sent, where the deployment says so. Returns at once."""
    if not settings.TELEMETRY.metrics:
        return
    _count_requests()
    threading.Thread(target=_run, args=(time.time_ns(),), name="metrics-exporter", daemon=True).start()


def _run(began: int) -> None:
    session, lock = requests.Session(), None
    # Proxies and .netrc are not configuration of the gateway.
    session.trust_env = False
    while True:
        time.sleep(settings.TELEMETRY.metrics_every)
        try:
            lock = lock or _lock()
            if lock is not None:
                otlp.deliver(session, "/v1/metrics", export_request(collect(), began, time.time_ns()))
        except Exception:
            log.exception("telemetry.metrics_failed")


def _lock() -> IO[str] | None:
    """Return the folder's lock, held until this process ends; None while another holds it."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder:
        # Then metrics are this process's alone.
        return Path(os.devnull).open()
    file = (Path(folder) / "exporter.lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def collect() -> list[Metric]:
    """Return the metrics of all processes of this folder, as `/metrics` shows them."""
    metrics.flush_to_prometheus()
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return list(REGISTRY.collect())
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # the library types only some
    return list(registry.collect())


def export_request(metrics: Iterable[Metric], began: int, now: int) -> bytes:
    """Return the message of these metrics; counts are since `began`, both in nanoseconds since 1970."""
    return otlp.export_request(told for one in metrics if (told := _metric(one, began, now)))


def _metric(metric: Metric, began: int, now: int) -> bytes:
    """Return a metric as OTLP has it; nothing for one without a value, or of a kind that is not sent."""
    name, unit = _NAMES.get(metric.name, (metric.name, metric.unit))
    if metric.type == "histogram":
        points = [wire.data(1, one) for one in _histogram_points(metric.samples, began, now)]
        told = wire.data(_HISTOGRAM, b"".join([*points, _CUMULATIVE]))
    elif metric.type == "counter":
        points = [wire.data(1, _point(one, began, now)) for one in metric.samples if one.name.endswith("_total")]
        told = wire.data(_SUM, b"".join([*points, _CUMULATIVE, _MONOTONIC]))
    elif metric.type == "gauge":
        points = [wire.data(1, _point(one, now, now)) for one in metric.samples]
        told = wire.data(_GAUGE, b"".join(points))
    else:
        return b""
    if not points:
        return b""
    return wire.text(1, name) + wire.text(2, metric.documentation) + wire.text(3, unit) + told


def _point(sample: Sample, began: int, now: int) -> bytes:
    """Return a `NumberDataPoint`."""
    return _attributes(7, sample.labels) + wire.fixed(2, began) + wire.fixed(3, now) + wire.double(4, sample.value)


def _histogram_points(samples: Iterable[Sample], began: int, now: int) -> Iterator[bytes]:
    """Yield a `HistogramDataPoint` for each set of labels; Prometheus' buckets hold those below them, too."""
    found: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, int]], list[float]]] = {}
    for one in samples:
        labels = tuple(sorted((name, value) for name, value in one.labels.items() if name != "le"))
        buckets, total = found.setdefault(labels, ([], [0.0]))
        if one.name.endswith("_bucket"):
            buckets.append((float(one.labels["le"]), int(one.value)))
        elif one.name.endswith("_sum"):
            total[0] = one.value
    for labels, (buckets, total) in found.items():
        buckets.sort()
        counts = [count for _, count in buckets]
        yield b"".join(
            [
                _attributes(9, dict(labels)),
                wire.fixed(2, began),
                wire.fixed(3, now),
                wire.fixed(4, counts[-1] if counts else 0),
                wire.double(5, total[0]),
                wire.packed_fixed(6, [at_most - below for at_most, below in zip(counts, [0, *counts], strict=False)]),
                wire.packed_doubles(7, [bound for bound, _ in buckets[:-1]]),
            ]
        )


def _attributes(field: int, labels: dict[str, str]) -> bytes:
    """Return labels as attributes, by the conventions' own names: dots cannot be in Prometheus'."""
    named = ((ATTRIBUTES.get(name, name), value) for name, value in labels.items() if value)
    return otlp.attributes(field, named)


# By Prometheus' label, which has no dots.
ATTRIBUTES = {
    "gen_ai_operation_name": "gen_ai.operation.name",
    "gen_ai_provider_name": "gen_ai.provider.name",
    "gen_ai_request_model": "gen_ai.request.model",
    "gen_ai_token_type": "gen_ai.token.type",
    "error_type": "error.type",
}
_COMMON = ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"]
# The conventions' own boundaries.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))


@cache
def _histograms() -> tuple[Histogram, Histogram]:
    """Return the two histograms; made when they are wanted, or they would be in everybody's `/metrics`."""
    duration = Histogram(
        "gen_ai_client_operation_duration_seconds",
        "Duration of a request",
        [*_COMMON, "error_type"],
        buckets=_SECONDS,
    )
    tokens = Histogram(
        "gen_ai_client_token_usage", "Tokens of a request", [*_COMMON, "gen_ai_token_type"], buckets=_TOKENS
    )
    return duration, tokens


@cache
def _count_requests() -> None:
    """Count every finished request of this process from now on."""
    tell(count_request)


def count_request(entry: Entry) -> None:
    """Count a finished request."""
    duration, tokens = _histograms()
    own = provider_label(entry.used_provider) == "custom"
    common = (
        operation_of_route(entry.route),
        provider_name(entry.used_provider),
        "custom" if own else entry.underlying_model,
    )
    error = str(entry.status_code) if entry.has_error else ""
    observe(labeled_child(duration, *common, error), entry.duration / 1000)
    for kind, number in (("input", entry.prompt_tokens), ("output", entry.completion_tokens)):
        if number:
            observe(labeled_child(tokens, *common, kind), number)
