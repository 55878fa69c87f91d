"""Metrics of the catalog for `/metrics`: proposals, price lists, and the age of prices, stored in Valkey when they
change.

They never make a scrape fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time
from typing import Any

import structlog
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from apps.catalog.models import CatalogProposal, PriceListReading, Provider
from apps.kernel.valkey.redis import client

log = structlog.get_logger(__name__)

# A hash: `<what> <label>` -> a number.
_KEY = "catalog_state"
_WAITING, _DISPUTED, _PROBLEMS, _CHECKED = "waiting", "disputed", "problems", "checked"
_TOTALS = {
    _WAITING: ("gateway_catalog_proposals_waiting", "Proposals from price lists that wait for a decision"),
    _DISPUTED: ("gateway_catalog_proposals_disputed", "Waiting proposals on which the price lists disagree"),
    _PROBLEMS: ("gateway_catalog_price_list_problems", "Configured price lists whose last reading was refused"),
}


def note_state() -> None:
    """Count, and store the numbers. Raises DatabaseError."""
    waiting = CatalogProposal.objects.filter(state=CatalogProposal.State.WAITING)
    found: dict[Any, Any] = {
        _WAITING: waiting.count(),
        _DISPUTED: waiting.filter(disputed=True).count(),
        _PROBLEMS: PriceListReading.objects.exclude(problem="").count(),
    }
    real = Provider.objects.exclude(facts__has_key="development_only")
    checked = real.filter(active=True, checked_on__isnull=False).values_list("id", "checked_on")
    found |= {f"{_CHECKED} {name}": datetime.combine(day, time(), UTC).timestamp() for name, day in checked if day}
    try:
        with client().pipeline(transaction=True) as pipeline:
            pipeline.delete(_KEY)
            pipeline.hset(_KEY, mapping=found)
            pipeline.execute()
    except RedisError as error:
        log.warning("catalog.not_counted", error=type(error).__name__)


def exposition() -> bytes:
    """Return the metrics in Prometheus' format; empty if the store is down or nothing was counted yet."""
    return generate_latest(_REGISTRY)


class _State(Collector):
    """Collects the stored numbers."""

    def collect(self) -> Iterator[Metric]:
        """Yield the totals, and the age of each active provider's prices."""
        try:
            kept: dict[Any, Any] = client().hgetall(_KEY)
        except RedisError as error:
            log.warning("catalog.not_read", error=type(error).__name__)
            return
        if not kept:
            return
        for what, (name, words) in _TOTALS.items():
            yield GaugeMetricFamily(name, words, value=float(kept.get(what, 0)))
        ages = GaugeMetricFamily(
            "gateway_catalog_price_age_seconds",
            "Since a person last compared a provider's data file with its pages",
            labels=["provider"],
        )
        now = timezone.now().timestamp()
        for field, moment in sorted(kept.items()):
            what, _, provider = str(field).partition(" ")
            if what == _CHECKED:
                ages.add_metric([provider], max(now - float(moment), 0.0))
        yield ages


_REGISTRY = CollectorRegistry(auto_describe=False)
_REGISTRY.register(_State())
