"""Counts and histograms that gather before they reach the metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from apps.gateway import metrics


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """Return what a scrape would show, but for when each metric was made."""
    found = {}
    for metric in registry.collect():
        for sample in metric.samples:
            if not sample.name.endswith("_created"):
                found[sample.name + "".join(f" {value}" for value in sample.labels.values())] = sample.value
    return found


def test_a_histogram_shows_what_it_was_let_see() -> None:
    registry = CollectorRegistry()
    seconds = Histogram("seconds", "Seconds", ["route"], buckets=(1, 2), registry=registry)
    for value in (0.5, 1.0, 1.5, 5.0):
        metrics.observe(metrics.labeled_child(seconds, "chat"), value)
    assert samples(registry)["seconds_count chat"] == 0
    metrics.flush_to_prometheus()
    told = {
        "seconds_bucket chat 1.0": 2,
        "seconds_bucket chat 2.0": 3,
        "seconds_bucket chat +Inf": 4,
        "seconds_count chat": 4,
        "seconds_sum chat": 8.0,
    }
    assert samples(registry) == told
    metrics.flush_to_prometheus()
    assert samples(registry) == told


def test_counts_add_up_once() -> None:
    registry = CollectorRegistry()
    asked = Counter("asked", "Requests", registry=registry)
    metrics.add(asked)
    metrics.add(asked, 2)
    metrics.flush_to_prometheus()
    metrics.flush_to_prometheus()
    assert samples(registry) == {"asked_total": 3}
