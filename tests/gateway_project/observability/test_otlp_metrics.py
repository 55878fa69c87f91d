"""Metrics as a collector gets them: the numbers that `/metrics` shows, in OTLP's model and the conventions' names."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from apps.gateway import metrics
from apps.kernel.ids import new_id
from apps.logs.entry import Entry
from gateway_project.configuration.telemetry_settings import TelemetrySettings
from gateway_project.observability import otlp_metrics
from tests.support.otlp_collector import Collector, values_of


def sent(families: Any) -> dict[str, Any]:
    """Return metrics by name as a collector reads them."""
    kept = Collector("")
    kept.take("/v1/metrics", otlp_metrics.export_request(families, 1, 2))
    return kept.metrics


def test_each_kind_is_told_as_what_it_is(settings: Any) -> None:
    settings.TELEMETRY = TelemetrySettings(endpoint="http://collector", metrics=True)
    registry = CollectorRegistry()
    Counter("things_total", "Things", ["kind"], registry=registry).labels("a").inc(3)
    Gauge("depth", "Depth", registry=registry).set(7)
    seen = Histogram("took_seconds", "Took", ["route"], buckets=(1, 2), registry=registry).labels("x")
    for value in (0.5, 1.5, 1.6, 9):
        seen.observe(value)
    found = sent(registry.collect())
    assert set(found) == {"things", "depth", "took_seconds"}
    [count] = found["things"].sum.data_points
    assert (found["things"].sum.is_monotonic, count.as_double, values_of(count.attributes)) == (True, 3, {"kind": "a"})
    assert (count.start_time_unix_nano, count.time_unix_nano) == (1, 2)
    [depth] = found["depth"].gauge.data_points
    assert depth.as_double == 7
    [took] = found["took_seconds"].histogram.data_points
    assert (list(took.explicit_bounds), list(took.bucket_counts), took.count) == ([1, 2], [1, 2, 1], 4)
    assert took.sum == 12.6


def test_requests_are_counted_in_the_conventions_names(settings: Any) -> None:
    settings.TELEMETRY = TelemetrySettings(endpoint="http://collector", metrics=True)
    entry = Entry(
        id=new_id(),
        request_id="r",
        organization_id=new_id(),
        project_id=new_id(),
        api_key_id=new_id(),
        route="chat_completions",
        requested_model="gpt-5",
        mode="credits",
        used_provider="azure",
        underlying_model="gpt-5-of-this-test",
        duration=1500,
        prompt_tokens=100,
        completion_tokens=7,
        status_code=200,
    )
    otlp_metrics.count_request(entry)
    metrics.REQUESTS.labels(entry.route, entry.underlying_model, entry.used_provider, entry.status_code).inc()
    found = sent(otlp_metrics.collect())
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "azure.ai.openai",
        "gen_ai.request.model": "gpt-5-of-this-test",
    }
    durations = [
        point
        for point in found["gen_ai.client.operation.duration"].histogram.data_points
        if values_of(point.attributes) == about
    ]
    assert [(point.count, point.sum) for point in durations] == [(1, 1.5)]
    assert found["gen_ai.client.operation.duration"].unit == "s"
    tokens = {
        values_of(point.attributes)["gen_ai.token.type"]: point.sum
        for point in found["gen_ai.client.token.usage"].histogram.data_points
        if values_of(point.attributes)["gen_ai.request.model"] == "gpt-5-of-this-test"
    }
    assert tokens == {"input": 100, "output": 7}
    # The gateway's own metrics go along, each under its own name.
    requests = [
        point.as_double
        for point in found["gateway_requests"].sum.data_points
        if values_of(point.attributes)["model"] == "gpt-5-of-this-test"
    ]
    assert requests == [1]
