"""Metrics of alerts for `/metrics`: messages by where they go and how they ended, counted in Valkey by the worker.

They are grouped by kind, not by destination or tenant, and never make a scrape or a delivery fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from apps.kernel.valkey.redis import client

log = structlog.get_logger(__name__)

# A hash: `<kind> <outcome>` -> a number; the kind of a destination, or `email`.
_KEY: Final = "alert_messages"
EMAIL: Final = "email"


def count_messages(kind: str, outcome: Literal["sent", "failed", "dropped"], number: int = 1) -> None:
    """Count messages: accepted, refused or not taken (each try), or dropped because they waited too long."""
    if not number:
        return
    try:
        client().hincrby(_KEY, f"{kind} {outcome}", number)
    except RedisError as error:
        log.warning("alerts.not_counted", error=type(error).__name__)


def exposition() -> bytes:
    """Return the metrics in Prometheus' format; empty if the store is down."""
    return generate_latest(_REGISTRY)


class _Messages(Collector):
    """Collects the stored numbers."""

    def collect(self) -> Iterator[Metric]:
        """Yield the number of messages of each kind and outcome."""
        try:
            kept: dict[Any, Any] = client().hgetall(_KEY)
        except RedisError as error:
            log.warning("alerts.not_read", error=type(error).__name__)
            return
        words = "Messages about alerts: sent, failed (each try), or dropped after days"
        family = CounterMetricFamily("gateway_alert_messages", words, labels=["kind", "outcome"])
        for field, number in sorted(kept.items()):
            family.add_metric(str(field).split(" "), float(number))
        yield family


_REGISTRY = CollectorRegistry(auto_describe=False)
_REGISTRY.register(_Messages())
