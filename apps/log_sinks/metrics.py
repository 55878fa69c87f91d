"""Metrics of log sinks for `/metrics`: waiting rows, lag, and states, stored in Valkey by the process that counts.

They are grouped by kind, not by sink or tenant, and never make a scrape fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import structlog
from django.db import connection
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from apps.kernel.valkey.redis import client

log = structlog.get_logger(__name__)

# A hash: `<kind> <what>` -> a number.
_KEY = "log_sinks"
_WHAT = {
    "waiting": ("gateway_log_sink_waiting_rows", "Rows that wait to be sent, at most 100,000 of each active sink"),
    "lag": ("gateway_log_sink_lag_seconds", "Time that the oldest waiting row of any active sink has waited"),
    "active": ("gateway_log_sinks_active", "Sinks that are switched on"),
    "failing": ("gateway_log_sinks_failing", "Sinks that are switched on and whose last delivery failed"),
    "disabled": ("gateway_log_sinks_disabled", "Sinks that were switched off because they failed for days"),
}
# Maximum rows that are counted of one sink: an index helps, but not with millions every few seconds.
_MAX_COUNTED = 100_000
_COUNT = """
    SELECT sink.kind, count(*) FILTER (WHERE sink.status = 'active'),
        count(*) FILTER (WHERE sink.status = 'active' AND sink.failures > 0),
        count(*) FILTER (WHERE sink.status = 'failed'),
        coalesce(sum(waiting.rows), 0), coalesce(extract(epoch FROM %s - min(oldest.queued_at)), 0)
    FROM log_sinks_logsink AS sink
    LEFT JOIN LATERAL (
        SELECT count(*) AS rows FROM (
            SELECT FROM log_sinks_waitingrow WHERE sink_id = sink.id AND sink.status = 'active' LIMIT %s
        ) AS counted
    ) AS waiting ON true
    LEFT JOIN LATERAL (
        SELECT queued_at FROM log_sinks_waitingrow WHERE sink_id = sink.id AND sink.status = 'active'
        ORDER BY id LIMIT 1
    ) AS oldest ON true
    GROUP BY sink.kind
"""


def take_down(now: datetime) -> None:
    """Count, and store the numbers. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [now, _MAX_COUNTED])
        found: dict[Any, Any] = {
            f"{kind} {what}": float(number)
            for kind, *numbers in cursor.fetchall()
            for what, number in zip(("active", "failing", "disabled", "waiting", "lag"), numbers, strict=True)
        }
    try:
        with client().pipeline(transaction=True) as pipeline:
            pipeline.delete(_KEY)
            if found:
                pipeline.hset(_KEY, mapping=found)
            pipeline.execute()
    except RedisError as error:
        log.warning("log_sinks.not_counted", error=type(error).__name__)


def exposition() -> bytes:
    """Return the metrics in Prometheus' format; empty if the store is down or there are no sinks."""
    return generate_latest(_REGISTRY)


class _Sinks(Collector):
    """Collects the stored numbers."""

    def collect(self) -> Iterator[Metric]:
        """Yield each number for every kind with a sink."""
        try:
            kept: dict[Any, Any] = client().hgetall(_KEY)
        except RedisError as error:
            log.warning("log_sinks.not_read", error=type(error).__name__)
            return
        for what, (name, words) in _WHAT.items():
            family = GaugeMetricFamily(name, words, labels=["kind"])
            for field, number in sorted(kept.items()):
                kind, _, metric = str(field).partition(" ")
                if metric == what:
                    family.add_metric([kind], float(number))
            yield family


_REGISTRY = CollectorRegistry(auto_describe=False)
_REGISTRY.register(_Sinks())
