"""Delivery to a collector: again where it asks for that, dropped and counted where it takes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from prometheus_client import REGISTRY

from apps.gateway.metrics import flush_to_prometheus
from apps.gateway.tracing import otlp, tracer
from apps.gateway.tracing.request_trace import MAX_SPANS, Callee, RequestTrace
from apps.gateway.tracing.tracer import SpanExporter, encode_trace
from gateway_project.configuration.telemetry_settings import TelemetrySettings
from tests.stack.product import eventually
from tests.support.otlp_collector import Collector, collector


@pytest.fixture
def collected(settings: Any) -> Iterator[Collector]:
    """A collector."""
    with collector() as running:
        settings.TELEMETRY = TelemetrySettings(endpoint=running.url, traces=True)
        yield running


def counted(name: str) -> float:
    """Return a counter's value."""
    flush_to_prometheus()
    return REGISTRY.get_sample_value(name) or 0.0


def ended_trace() -> RequestTrace:
    """Return a trace of one attempt that has ended."""
    trace = RequestTrace.begin("POST /x", time.monotonic(), None, lambda _: None)
    trace.begin_attempt(Callee("sandbox", "echo", "http://127.0.0.1:1/v1"))
    trace.finish()
    return trace


@pytest.mark.parametrize(
    ("statuses", "taken", "asked"),
    [([], True, 1), ([503, 429], True, 3), ([400], False, 1), ([503, 503, 503, 503], False, 4)],
)
def test_a_message_is_sent_again_where_that_may_help(
    collected: Collector, statuses: list[int], taken: bool, asked: int
) -> None:
    collected.statuses = list(statuses)
    pauses: list[float] = []
    assert otlp.deliver(requests.Session(), "/v1/traces", b"", (0.1, 0.2, 0.4), pauses.append) is taken
    assert len(collected.headers) == asked
    assert pauses == [0.1, 0.2, 0.4][: len(pauses)]


def test_without_a_collector_traces_are_dropped_and_counted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.TELEMETRY = TelemetrySettings(endpoint="http://127.0.0.1:1", traces=True)
    monkeypatch.setattr(otlp.deliver, "__defaults__", ((), lambda _: None))
    exporter, before = SpanExporter(every=3600), counted("gateway_traces_dropped_total")
    for _ in range(3):
        exporter.add(ended_trace())
    exporter.flush()
    assert counted("gateway_traces_dropped_total") == before + 3


@pytest.mark.parametrize(("added", "encoded"), [(2, 0), (3, 3), (4, 3), (6, 6)])
def test_traces_are_encoded_so_many_at_a_time(
    collected: Collector, monkeypatch: pytest.MonkeyPatch, added: int, encoded: int
) -> None:
    found: list[bytes] = []
    monkeypatch.setattr(tracer, "TOGETHER", 3)
    monkeypatch.setattr(tracer, "encode_trace", lambda trace: found.append(encode_trace(trace)) or found[-1])
    exporter = SpanExporter(every=3600)
    for _ in range(added):
        exporter.add(ended_trace())
    assert len(found) == encoded
    exporter.flush()
    assert len(found) == added
    assert len(collected.spans) == 2 * added


def test_a_trace_with_content_waits_for_no_other(collected: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(tracer, "encode_trace", lambda trace: found.append(trace.task) or b"")
    exporter = SpanExporter(every=3600)
    for task in ("chat", "embeddings"):
        trace = ended_trace()
        trace.task, trace.content = task, b"what was said" if task == "embeddings" else b""
        exporter.add(trace)
    assert found == ["chat", "embeddings"]


def test_a_trace_that_cannot_be_encoded_takes_no_other_with_it(collected: Collector) -> None:
    exporter, before = SpanExporter(every=3600), counted("gateway_traces_dropped_total")
    broken = ended_trace()
    broken.spans[0].start = float("nan")
    for trace in (ended_trace(), broken, ended_trace()):
        exporter.add(trace)
    exporter.flush()
    assert len(collected.spans) == 4
    assert counted("gateway_traces_dropped_total") == before + 1


def test_no_more_traces_wait_than_there_is_room_for(collected: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "TOGETHER", 1)
    monkeypatch.setattr(tracer, "MAX_WAITING", 2 * len(encode_trace(ended_trace())))
    exporter, before = SpanExporter(every=3600), counted("gateway_traces_dropped_total")
    for _ in range(5):
        exporter.add(ended_trace())
    exporter.flush()
    assert len(collected.spans) == 4
    assert counted("gateway_traces_dropped_total") == before + 3


def test_a_message_has_so_many_bytes_and_room_is_free_again_once_it_is_taken(
    collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(encode_trace(ended_trace()))
    monkeypatch.setattr(tracer, "_BATCH", 2 * size)
    monkeypatch.setattr(tracer, "MAX_WAITING", 5 * size)
    exporter = SpanExporter(every=3600)
    for _ in range(2):
        for _ in range(5):
            exporter.add(ended_trace())
        exporter.flush()
    assert len(collected.spans) == 20
    # Two traces, two, and one; twice.
    assert len(collected.headers) == 6


def test_a_step_that_lasts_ends_with_its_request(collected: Collector) -> None:
    exporter = SpanExporter(every=3600)
    exporter.add(ended_trace())
    exporter.flush()
    request, attempt = collected.spans
    assert (request.parent_id, attempt.parent_id, attempt.end) == ("", request.span_id, request.end)
    assert abs(request.end - time.time_ns()) < 60 * 10**9


def test_each_span_has_an_id_of_its_own_and_a_parent_that_is_there(collected: Collector) -> None:
    exporter, trace = SpanExporter(every=3600), RequestTrace.begin("POST /x", 1.0, None, lambda _: None)
    trace.admitted_at = 2.0
    callee = Callee("sandbox", "echo", "http://127.0.0.1:1/v1")
    attempt = trace.begin_attempt(callee)
    told = {trace.headers_within(trace.begin_call(attempt.span, callee))["traceparent"][36:52] for _ in range(200)}
    trace.end_attempts(3.0)
    trace.finish()
    exporter.add(trace)
    exporter.flush()
    by_id = {span.span_id: span for span in collected.spans}
    # The request, its admission, an attempt, its settlement, and as many calls as there is room for.
    assert len(by_id) == len(collected.spans) == MAX_SPANS
    [request] = [span for span in collected.spans if span.name == "POST /x"]
    parents = {span.name: by_id[span.parent_id].name for span in collected.spans if span is not request}
    assert parents == {"admission": "POST /x", "attempt": "POST /x", "settle": "POST /x", "provider": "attempt"}
    assert told >= {span.span_id for span in collected.spans if span.name == "provider"}
    [admission], [settle] = ([one for one in collected.spans if one.name == name] for name in ("admission", "settle"))
    assert (admission.start, admission.end - admission.start) == (request.start, 10**9)
    assert (settle.start - request.start, settle.end) == (2 * 10**9, request.end)


def test_the_thread_sends_what_waits(collected: Collector) -> None:
    SpanExporter(every=0.02).add(ended_trace())
    eventually(lambda: collected.spans)
    assert [span.name for span in collected.spans] == ["POST /x", "attempt"]
