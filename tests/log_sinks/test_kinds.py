"""Deliveries to each kind of sink, read as its receiver reads them: tests compute signatures from what arrived."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from apps.destinations.exchange import DeliveryFailed
from apps.log_sinks.delivery import deliver, send_sample
from apps.log_sinks.models import LogSink
from apps.logs.serializers import LOG_FIELDS
from tests.log_sinks.sinks import ACCESS_KEY, PUBLIC_KEY, SECRET, SECRET_KEY, SIGNING_KEY, log_row, make_sink
from tests.logs.entries import FULL
from tests.support.cast import World
from tests.support.sink_receiver import Receiver, Taken


@pytest.fixture
def retaining(world: World) -> World:
    world.acme.retention_level = "retain"
    world.acme.save()
    return world


def log_full(world: World, **columns: Any) -> Any:
    return log_row(world, **{**FULL, "retention_level": "retain", "has_error": False, **columns})


def is_signed_by_standard_webhooks(taken: Taken) -> bool:
    """Check a signature as the specification says: over id, timestamp and body, with the decoded secret."""
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    identifier, moment, signature = (taken.headers[name] for name in names)
    assert abs(datetime.now(UTC).timestamp() - int(moment)) < 60
    signed = f"{identifier}.{moment}.".encode() + taken.body
    digest = hmac.new(base64.b64decode(SECRET.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    return signature == "v1," + base64.b64encode(digest).decode()


@pytest.mark.parametrize(
    ("options", "content_type"), [({}, "application/x-ndjson"), ({"format": "json"}, "application/json")]
)
def test_a_webhook_gets_the_logs_own_json_signed(
    retaining: World, receiver: Receiver, options: dict[str, str], content_type: str
) -> None:
    sink = make_sink(retaining, "webhook", f"{receiver.origin}/hook?a=1", options=options, include_content=True)
    record = log_full(retaining)
    assert deliver(sink.pk) == 1
    (taken,) = receiver.taken
    assert (taken.method, taken.path, taken.headers["content-type"]) == ("POST", "/hook?a=1", content_type)
    assert taken.headers["webhook-id"] == f"{sink.pk}-000000000001"
    assert is_signed_by_standard_webhooks(taken)
    rows = json.loads(taken.body) if options else [json.loads(line) for line in taken.body.splitlines()]
    assert [set(row) for row in rows] == [set(LOG_FIELDS)]
    assert (rows[0]["id"], rows[0]["content"], rows[0]["cost"]) == (str(record.id), FULL["content"], 1e-12)
    assert rows[0]["messages"] == FULL["messages"]


def signature_v4(taken: Taken, host: str) -> str:
    """Return AWS's signature of a request as it arrived, by the steps of its documentation."""
    _, _, rest = taken.headers["authorization"].partition(" ")
    fields = dict(part.strip().split("=", 1) for part in rest.split(","))
    _, day, region, service, _ = fields["Credential"].split("/")
    names = fields["SignedHeaders"].split(";")
    headers = "".join(f"{name}:{(host if name == 'host' else taken.headers[name]).strip()}\n" for name in names)
    parts = urlsplit(taken.path)
    body = hashlib.sha256(taken.body).hexdigest()
    canonical = "\n".join([taken.method, parts.path, parts.query, headers, ";".join(names), body])
    scope = f"{day}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", taken.headers["x-amz-date"], scope, digest])
    key = f"AWS4{SIGNING_KEY}".encode()
    for word in (day, region, service, "aws4_request"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()


def test_a_bucket_gets_an_object_that_is_signed(retaining: World, receiver: Receiver) -> None:
    options = {"bucket": "acme-logs", "region": "eu-central-1", "prefix": "gateway/year=2026/"}
    sink = make_sink(retaining, "s3", f"{receiver.origin}/", options=options)
    record = log_full(retaining)
    day = datetime.now(UTC)
    assert deliver(sink.pk) == 1
    (taken,) = receiver.taken
    paths = {
        f"/acme-logs/gateway/year%3D2026/{moment:%Y/%m/%d}/{sink.pk}-000000000001.jsonl.gz"
        for moment in (day, datetime.now(UTC))
    }
    assert (taken.method, taken.path in paths) == ("PUT", True)
    assert taken.headers["x-amz-content-sha256"] == hashlib.sha256(taken.body).hexdigest()
    authorization = taken.headers["authorization"]
    assert authorization.startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{day:%Y%m%d}/eu-central-1/s3/")
    signed = "content-type;host;x-amz-content-sha256;x-amz-date"
    assert f"SignedHeaders={signed}," in authorization
    assert authorization.endswith(f"Signature={signature_v4(taken, taken.headers['host'])}")
    (line,) = gzip.decompress(taken.body).splitlines()
    row = json.loads(line)
    assert (row["id"], row["content"], row["source"]) == (str(record.id), None, "web")
    assert SIGNING_KEY not in str(taken)


def attributes_of(span: Any) -> dict[str, Any]:
    """The attributes of a span as plain values."""
    found = {}
    for one in span.attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        found[one.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


def test_langfuse_gets_spans_by_the_conventions(retaining: World, receiver: Receiver) -> None:
    sink = make_sink(retaining, "otlp", f"{receiver.origin}/api/public/otel/v1/traces", include_content=True)
    record = log_full(retaining, time_to_first_token=250)
    failed = log_row(retaining, has_error=True, status_code=502, used_provider="custom:x")
    assert deliver(sink.pk) == 2
    (taken,) = receiver.taken
    basic = base64.b64encode(f"{PUBLIC_KEY}:{SECRET_KEY}".encode()).decode()
    assert (taken.path, taken.headers["authorization"]) == ("/api/public/otel/v1/traces", f"Basic {basic}")
    # Ids are hexadecimal in OTLP's JSON, which is where it differs from that of protocol buffers.
    told = json.loads(taken.body)
    resource_spans = told["resourceSpans"][0]
    assert resource_spans["schemaUrl"] == "https://opentelemetry.io/schemas/1.41.0"
    assert resource_spans["scopeSpans"][0]["schemaUrl"] == "https://opentelemetry.io/schemas/1.41.0"
    spans = resource_spans["scopeSpans"][0]["spans"]
    assert [(one["traceId"], one["spanId"]) for one in spans] == [
        (one.id.hex, one.id.hex[16:]) for one in (record, failed)
    ]
    for one in spans:
        one["traceId"], one["spanId"] = (
            base64.b64encode(bytes.fromhex(one[name])).decode() for name in ("traceId", "spanId")
        )
    message = json_format.ParseDict(told, ExportTraceServiceRequest())
    first, second = message.resource_spans[0].scope_spans[0].spans
    took = timedelta(microseconds=(first.end_time_unix_nano - first.start_time_unix_nano) / 1000)
    assert (first.name, first.kind, took) == ("chat gpt-5", 3, timedelta(milliseconds=120))
    attributes = attributes_of(first)
    assert json.loads(attributes.pop("gen_ai.input.messages")) == [
        {"role": "user", "parts": [{"type": "text", "content": "Grüße, 世界 🌍"}]}
    ]
    assert json.loads(attributes.pop("gen_ai.output.messages")) == [
        {"role": "assistant", "parts": [{"type": "text", "content": FULL["content"]}], "finish_reason": "stop"}
    ]
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.model": "gpt-5-2026-08-07",
        "gen_ai.response.id": None,
        "gateway.log_id": str(record.id),
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cost": 1e-12,
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.max_tokens": 4096,
        "http.response.status_code": 200,
        "gateway.organization_id": str(retaining.acme.id),
        "gateway.source": "web",
        "gen_ai.conversation.id": "run-1",
        "gateway.streamed": True,
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": 0.25,
    }
    assert {name: attributes.get(name) for name in expected} == expected
    other = attributes_of(second)
    assert (second.status.code, other["error.type"], other["gen_ai.provider.name"]) == (2, "502", "custom")
    assert not [name for name in other if name.endswith(".messages")]


@pytest.mark.parametrize(
    ("kind", "options"), [("webhook", {}), ("s3", {"bucket": "acme", "region": "auto"}), ("otlp", {})]
)
def test_a_sample_is_sent_and_changes_nothing(
    world: World, receiver: Receiver, kind: str, options: dict[str, str]
) -> None:
    sink = make_sink(world, kind, f"{receiver.origin}/here", options=options)
    before = LogSink.objects.values().get()
    send_sample(sink)
    assert len(receiver.taken) == 1
    if kind == "s3":
        assert receiver.taken[0].path.endswith(f"/{sink.pk}-sample.jsonl.gz")
    receiver.status = 403
    with pytest.raises(DeliveryFailed, match="It answered 403"):
        send_sample(sink)
    assert LogSink.objects.values().get() == before
