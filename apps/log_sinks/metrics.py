"""Metrics of log sinks, for `/metrics`: what waits and for how long, and how sinks do, kept in Valkey by whoever looks.

By kind, not by sink: how many there are is the tenants' affair. Must never tell whose a sink is, nor fail anybody.
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

from apps.kernel.redis import client

log = structlog.get_logger(__name__)

# A hash: `<kind> <what>` -> a number.
_KEY = "log_sinks"
_WHAT = {
    "waiting": ("gateway_log_sink_waiting_rows", "Rows of the log that wait to be sent to active sinks"),
    "lag": ("gateway_log_sink_lag_seconds", "Time that the oldest waiting row of any active sink has waited"),
    "active": ("gateway_log_sinks_active", "Sinks that are switched on"),
    "failing": ("gateway_log_sinks_failing", "Sinks that are switched on and did not take what they were sent last"),
    "disabled": ("gateway_log_sinks_disabled", "Sinks that were switched off because they failed for days"),
}
_COUNT = """
    SELECT sink.kind, count(*) FILTER (WHERE sink.status = 'active'),
        count(*) FILTER (WHERE sink.status = 'active' AND sink.failures > 0),
        count(*) FILTER (WHERE sink.status = 'failed'),
        coalesce(sum(waiting.rows) FILTER (WHERE sink.status = 'active'), 0),
        coalesce(extract(epoch FROM %s - min(waiting.oldest) FILTER (WHERE sink.status = 'active')), 0)
    FROM log_sinks_logsink AS sink LEFT JOIN (
        SELECT sink_id, count(*) AS rows, min(queued_at) AS oldest FROM log_sinks_waitingrow GROUP BY sink_id
    ) AS waiting ON waiting.sink_id = sink.id
    GROUP BY sink.kind
"""


def take_down(now: datetime) -> None:
    """Count, and keep the numbers for whoever asks. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [now])
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
    """Return what there is to tell in Prometheus' format; nothing while the store is away, or nobody has sinks."""
    return generate_latest(_REGISTRY)


class _Sinks(Collector):
    """The numbers, read when they are asked for."""

    def collect(self) -> Iterator[Metric]:
        """Yield each number for every kind of which there is a sink."""
        try:
            kept: dict[Any, Any] = client().hgetall(_KEY)
        except RedisError as error:
            log.warning("log_sinks.not_read", error=type(error).__name__)
            return
        for what, (name, words) in _WHAT.items():
            family = GaugeMetricFamily(name, words, labels=["kind"])
            for field, number in sorted(kept.items()):
                kind, _, told = str(field).partition(" ")
                if told == what:
                    family.add_metric([kind], float(number))
            yield family


_REGISTRY = CollectorRegistry(auto_describe=False)
_REGISTRY.register(_Sinks())
