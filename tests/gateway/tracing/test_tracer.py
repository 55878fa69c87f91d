"""Requests as a collector sees them: every span with its attributes, content only where it is kept and asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.tracing import otlp, tracer
from apps.gateway.tracing.request_trace import RequestTrace
from apps.gateway.tracing.tracer import SpanExporter
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from gateway_project.configuration.telemetry_settings import TelemetrySettings
from tests.support.guardrails_in_force import guard
from tests.support.otlp_collector import Collector, ReceivedSpan, collector
from tests.support.upstream import Caller, chunks_of, settle_all

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
INTERNAL, SERVER, CLIENT = 1, 2, 3


@pytest.fixture
def collected(settings: Any) -> Iterator[Collector]:
    """A collector that every request is traced to."""
    with collector() as running:
        settings.TELEMETRY = TelemetrySettings(endpoint=running.url, headers={"authorization": "k"}, traces=True)
        otlp.resource.cache_clear()
        yield running
        tracer.exporter().flush()


def spans_of(collected: Collector) -> dict[str, list[ReceivedSpan]]:
    """Have all that waits sent, and return the spans by name."""
    tracer.exporter().flush()
    found: dict[str, list[ReceivedSpan]] = {}
    for span in collected.spans:
        found.setdefault(span.name, []).append(span)
    return found


def test_a_fallback_is_a_trace_of_both_providers(
    caller: Caller, backup: str, collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_API_KEY", "invalid")
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="metadata")
    tag = uuid4().hex
    answer = caller.chat(f"hi [[sandbox tag={tag}]]", model="echo", temperature=0.5, max_tokens=50, headers=PARENT)
    assert answer.status_code == 200
    assert settle_all() == 1
    row = RequestLog.objects.get()
    spans = spans_of(collected)
    assert sorted((name, len(found)) for name, found in spans.items()) == [
        ("POST /v1/chat/completions", 1),
        ("admission", 1),
        ("attempt", 2),
        ("chat echo", 2),
        ("settle", 1),
    ]
    assert {span.trace_id for span in collected.spans} == {TRACE}
    [request], [admission], [settle] = spans["POST /v1/chat/completions"], spans["admission"], spans["settle"]
    assert (request.kind, request.parent_id, request.failed) == (SERVER, SPAN, False)
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "gateway.request_id": row.request_id,
        "gateway.log_id": str(row.id),
        "gateway.organization_id": str(caller.organization_id),
        "gateway.project_id": str(caller.key.project_id),
        "gateway.api_key_id": str(caller.key.id),
        "gateway.requested_model": "echo",
        "gateway.used_model": "echo",
        "gateway.streamed": False,
        "gateway.cost_usd": float(row.cost or 0),
    }
    first, second = spans["attempt"]
    assert [(one.kind, one.parent_id, one.failed, one.attributes) for one in (first, second)] == [
        (INTERNAL, request.span_id, True, {"error.type": "client_error"}),
        (INTERNAL, request.span_id, False, {}),
    ]
    refused, answered = spans["chat echo"]
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "echo",
        "server.address": "127.0.0.1",
        "server.port": int(caller.sandbox_url.rpartition(":")[2]),
    }
    assert (refused.kind, refused.parent_id, refused.failed) == (CLIENT, first.span_id, True)
    assert refused.attributes == {
        **asked,
        "gen_ai.provider.name": "sandbox",
        "http.response.status_code": 401,
        "error.type": "client_error",
    }
    assert (answered.kind, answered.parent_id, answered.failed) == (CLIENT, second.span_id, False)
    # The provider's own id; the client's is made of the log's.
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", answered.attributes.pop("gen_ai.response.id"))
    assert answered.attributes == {
        **asked,
        "gen_ai.provider.name": "backup",
        "http.response.status_code": 200,
        "gen_ai.response.model": "echo",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": row.prompt_tokens,
        "gen_ai.usage.output_tokens": row.completion_tokens,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 50,
    }
    assert (
        request.start == admission.start <= admission.end <= first.start <= refused.start <= refused.end <= second.end
    )
    assert answered.end <= settle.start <= settle.end <= request.end
    # Each provider gets the span in which it is called.
    assert [sent["headers"].get("traceparent") for sent in caller.sent(tag)] == [f"00-{TRACE}-{answered.span_id}-01"]
    assert [sent["headers"].get("tracestate") for sent in caller.sent(tag)] == ["vendor=1"]
    assert collected.resources[0]["service.name"] == "model-gateway"
    assert collected.headers[0]["authorization"] == "k"


def test_a_stream_ends_its_trace_with_its_last_event(caller: Caller, collected: Collector) -> None:
    assert chunks_of(caller.chat(stream=True))[-1] == "[DONE]"
    spans = spans_of(collected)
    [request] = spans["POST /v1/chat/completions"]
    assert request.attributes["gateway.streamed"] is True
    [answered] = spans["chat echo"]
    assert answered.attributes["gen_ai.request.stream"] is True
    # In seconds, from the call of the provider on.
    assert settle_all() == 1
    counted = (RequestLog.objects.get().time_to_first_token or 0) / 1000 - (answered.start - request.start) / 1e9
    assert answered.attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(max(counted, 0.0), abs=1e-6)
    assert request.parent_id == ""
    [answered] = spans["chat echo"]
    assert answered.attributes["gen_ai.usage.output_tokens"] > 0


@pytest.mark.parametrize(("retention", "told"), [("metadata", "the-session"), ("none", None)])
def test_a_session_is_the_conversation_of_its_requests(
    caller: Caller, collected: Collector, retention: str, told: str | None
) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level=retention)
    assert caller.chat(headers={"x-session-id": "the-session"}).status_code == 200
    [answered] = spans_of(collected)["chat echo"]
    assert answered.attributes.get("gen_ai.conversation.id") == told


def test_messages_name_the_schema_of_their_names(caller: Caller, collected: Collector) -> None:
    assert caller.chat().status_code == 200
    tracer.exporter().flush()
    assert set(collected.schemas) == {("https://opentelemetry.io/schemas/1.41.0",) * 2}


def test_a_refused_request_is_a_trace_of_one_span(caller: Caller, collected: Collector) -> None:
    assert caller.chat(model="no-such-model").status_code in {400, 404}
    [request] = collected_after(collected)
    assert (request.name, request.failed) == ("POST /v1/chat/completions", False)
    assert request.attributes["http.response.status_code"] in {400, 404}


def test_a_failed_request_is_an_error(caller: Caller, collected: Collector) -> None:
    assert caller.chat("hi [[sandbox status=500]]").status_code == 502
    spans = spans_of(collected)
    [request] = spans["POST /v1/chat/completions"]
    assert (request.failed, request.attributes["error.type"]) == (True, "all_providers_failed")


def collected_after(collected: Collector) -> list[ReceivedSpan]:
    """Return the spans of all that was asked."""
    return [span for found in spans_of(collected).values() for span in found]


def test_what_the_client_does_not_sample_is_not_traced_and_its_provider_is_told_nothing(
    caller: Caller, collected: Collector
) -> None:
    tag = uuid4().hex
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
    assert caller.chat(f"hi [[sandbox tag={tag}]]", headers=headers).status_code == 200
    assert collected_after(collected) == []
    assert "traceparent" not in caller.sent(tag)[0]["headers"]


def test_off_nothing_is_traced_or_passed_on(caller: Caller, collected: Collector, settings: Any) -> None:
    settings.TELEMETRY = TelemetrySettings()
    tag = uuid4().hex
    assert caller.chat(f"hi [[sandbox tag={tag}]]", headers=PARENT).status_code == 200
    assert collected_after(collected) == []
    assert "traceparent" not in caller.sent(tag)[0]["headers"]


@pytest.mark.parametrize(
    ("retention", "asked", "kept"), [("retain", True, True), ("retain", False, False), ("metadata", True, False)]
)
def test_content_is_told_where_it_is_kept_and_asked_for(
    caller: Caller, collected: Collector, settings: Any, retention: str, asked: bool, kept: bool
) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level=retention)
    settings.TELEMETRY = TelemetrySettings(endpoint=collected.url, traces=True, content=asked)
    function = {"name": "secret_tool", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    assert caller.chat("a secret word", tools=tools).status_code == 200
    [answered] = spans_of(collected)["chat echo"]
    texts = [answered.attributes.get(f"gen_ai.{which}.messages") for which in ("input", "output")]
    if not kept:
        assert texts == [None, None]
        assert "gen_ai.tool.definitions" not in answered.attributes
        assert "secret" not in repr(collected.spans)
        return
    said, answer = (json.loads(text) for text in texts if text)
    assert said == [{"role": "user", "parts": [{"type": "text", "content": "a secret word"}]}]
    assert (answer[0]["role"], answer[0]["finish_reason"]) == ("assistant", "stop")
    assert answer[0]["parts"][0]["type"] == "text"
    assert json.loads(answered.attributes["gen_ai.tool.definitions"]) == [{"type": "function", **function}]


def test_traces_have_placeholders_of_what_comes_back_to_the_client(
    caller: Caller, collected: Collector, settings: Any
) -> None:
    settings.TELEMETRY = TelemetrySettings(endpoint=collected.url, traces=True, content=True)
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    guard(caller, rules={"pii_detection": "redact"})
    answer = caller.chat("ask ann@zanzibar-post.com")
    assert answer.json()["choices"][0]["message"]["content"] == "You said: ask ann@zanzibar-post.com"
    [answered] = spans_of(collected)["chat echo"]
    asked, said = (json.loads(answered.attributes[f"gen_ai.{name}.messages"]) for name in ("input", "output"))
    assert asked[0]["parts"] == [{"type": "text", "content": "ask [EMAIL_1]"}]
    assert said[0]["parts"] == [{"type": "text", "content": "You said: ask [EMAIL_1]"}]
    assert "zanzibar" not in repr([span.attributes for span in collected.spans])


def test_a_trace_that_waits_for_others_keeps_nothing_of_what_was_said(
    caller: Caller, collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    waiting: list[RequestTrace] = []
    exporter = SpanExporter(every=3600)
    monkeypatch.setattr(exporter, "add", waiting.append)
    monkeypatch.setattr(tracer, "exporter", lambda: exporter)
    function = {"name": "secret_tool", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    assert caller.chat("a secret word", tools=tools).status_code == 200
    [trace] = waiting
    assert trace.entry is not None
    assert (trace.entry.used_model, trace.entry.retention_level) == ("echo", "retain")
    assert "secret word" not in repr(trace.entry)
    # The record does.
    assert settle_all() == 1
    assert "a secret word" in repr(RequestLog.objects.get().messages)
