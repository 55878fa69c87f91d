"""Kinds of log sinks: how a batch of rows becomes the request of a webhook, a bucket, or a receiver of OTLP;
and the credentials of each, which are stored encrypted. Pure.

- Webhooks get JSON lines or one JSON array, signed as in Standard Webhooks (`webhook-id`, `webhook-timestamp` and
  `webhook-signature`, https://www.standardwebhooks.com).
- Buckets (S3 and compatible services) get an object of gzipped JSON lines for each batch. A repeated batch has the same
  key, and so replaces its object.
- OTLP receivers (Langfuse and compatible services) get rows as spans by OpenTelemetry's conventions for generative AI,
  in JSON. Ids are derived from the row's id, so a row that is sent twice is one span.

Credentials never appear in logs or exceptions.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

import msgspec

from apps.destinations.credentials import SealedStruct, WebhookSecret
from apps.destinations.exchange import DeliveryRequest
from apps.kernel.secrets.webhook_signature import signed_headers
from apps.keys.aws_signature import STORAGE, Place, Signable, signature
from apps.logs.genai_names import SCHEMA_URL, finish_reason_of, operation_of_route, provider_name
from apps.logs.query import LogRow
from apps.logs.serializers import encode, entry_of


class BucketKeys(SealedStruct, frozen=True, tag="s3"):
    """The access key of a bucket."""

    access_key_id: str
    secret_access_key: str

    @property
    def masked(self) -> str:
        """The displayable part: the id is public."""
        return self.access_key_id

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.secret_access_key]


class OtlpKeys(SealedStruct, frozen=True, tag="otlp"):
    """Keys for basic authentication: a public and a secret key."""

    public_key: str
    secret_key: str

    @property
    def masked(self) -> str:
        """The displayable part: the public key."""
        return self.public_key

    @property
    def basic(self) -> str:
        """The value of `Authorization`."""
        return "Basic " + base64.b64encode(f"{self.public_key}:{self.secret_key}".encode()).decode()

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.secret_key, self.basic.removeprefix("Basic ")]


Credentials = WebhookSecret | BucketKeys | OtlpKeys


class SinkBatch(NamedTuple):
    """Rows for one sink: its id, the batch's number, and the day on which the first of them was queued.

    A batch that is sent again has the same name; a sample has the number 0.
    """

    sink_id: UUID
    number: int
    day: date
    rows: list[LogRow]

    @property
    def name(self) -> str:
        """The batch's name at the sink; names sort by number."""
        return f"{self.sink_id}-{self.number:012}" if self.number else f"{self.sink_id}-sample"


class SinkAddress(NamedTuple):
    """The address of a sink, and the options of its kind."""

    url: str
    options: dict[str, Any]


JSON_LINES, JSON_ARRAY = "jsonl", "json"
_TYPES = {JSON_LINES: "application/x-ndjson", JSON_ARRAY: "application/json"}


def webhook_request(to: SinkAddress, credentials: WebhookSecret, batch: SinkBatch, now: datetime) -> DeliveryRequest:
    """Return the request that posts the rows; `now` is the time that is signed."""
    form = to.options.get("format", JSON_LINES)
    lines = [encode(entry_of(row)) for row in batch.rows]
    body = b"[" + b",".join(lines) + b"]" if form == JSON_ARRAY else b"".join(line + b"\n" for line in lines)
    headers = {"Content-Type": _TYPES[form], **signed_headers(credentials.key, batch.name, now, body)}
    return DeliveryRequest("POST", to.url, headers, body)


def key_of(prefix: str, batch: SinkBatch) -> str:
    """Return the object's key: the day on which the batch was queued, then the sink and the batch's number."""
    return f"{prefix}{batch.day:%Y/%m/%d}/{batch.name}.jsonl.gz"


def bucket_request(to: SinkAddress, credentials: BucketKeys, batch: SinkBatch, now: datetime) -> DeliveryRequest:
    """Return the request that puts the object, signed at `now` (UTC)."""
    lines = b"".join(encode(entry_of(row)) + b"\n" for row in batch.rows)
    # No timestamp, so that the same rows give the same bytes.
    body = gzip.compress(lines, compresslevel=6, mtime=0)
    key = quote(key_of(to.options.get("prefix", ""), batch), safe="/-_.~")
    url = f"{to.url.rstrip('/')}/{to.options['bucket']}/{key}"
    headers = {
        "Content-Type": "application/gzip",
        "X-Amz-Content-SHA256": sha256(body).hexdigest(),
        "X-Amz-Date": f"{now:%Y%m%dT%H%M%SZ}",
    }
    place = Place(STORAGE, to.options["region"])
    signed = signature(
        Signable("PUT", url, headers, body), place, credentials.access_key_id, credentials.secret_access_key
    )
    return DeliveryRequest("PUT", url, {**headers, "Authorization": signed}, body)


# Characters of one attribute; longer ones are dropped, because half of one would be unreadable.
MAX_CHARACTERS = 262_144
_CLIENT, _ERROR = 3, 2
# Attribute -> column, for values that are sent unchanged.
_COLUMNS = {
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.reasoning.level": "reasoning_effort",
    "gen_ai.usage.input_tokens": "prompt_tokens",
    "gen_ai.usage.output_tokens": "completion_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
    "gen_ai.usage.reasoning.output_tokens": "reasoning_tokens",
    "http.response.status_code": "status_code",
    "gateway.request_id": "request_id",
    "gateway.requested_model": "requested_model",
    "gateway.streamed": "streamed",
    "gateway.cached": "cached",
    "gateway.source": "source",
    "gen_ai.conversation.id": "session_id",
}


def otlp_request(to: SinkAddress, credentials: OtlpKeys, batch: SinkBatch, now: datetime) -> DeliveryRequest:
    """Return the request that posts the spans; `now` is not needed."""
    spans = [span_of(row) for row in batch.rows]
    scope = {"scope": {"name": "model-gateway"}, "spans": spans, "schemaUrl": SCHEMA_URL}
    resource = {"attributes": [_attribute("service.name", "model-gateway")]}
    told = {"resource": resource, "scopeSpans": [scope], "schemaUrl": SCHEMA_URL}
    body = msgspec.json.encode({"resourceSpans": [told]})
    headers = {"Content-Type": "application/json", "Authorization": credentials.basic}
    return DeliveryRequest("POST", to.url, headers, body)


def span_of(row: LogRow) -> dict[str, Any]:
    """Return a row as a span in OTLP's JSON format."""
    identifier: UUID = row["id"]
    began: datetime = row["created_at"]
    operation = operation_of_route(row["route"])
    model = row["used_model"] or row["requested_model"]
    span = {
        "traceId": identifier.hex,
        # The random half of the id.
        "spanId": identifier.hex[16:],
        "name": f"{operation} {model}",
        "kind": _CLIENT,
        "startTimeUnixNano": _nanoseconds(began),
        "endTimeUnixNano": _nanoseconds(began + timedelta(milliseconds=row["duration"])),
        "attributes": [_attribute(name, value) for name, value in _attributes(row, operation, model)],
    }
    return {**span, "status": {"code": _ERROR}} if row["has_error"] else span


def _attributes(row: LogRow, operation: str, model: str) -> Iterator[tuple[str, Any]]:
    yield "gen_ai.operation.name", operation
    yield "gen_ai.provider.name", provider_name(row["used_provider"])
    yield "gen_ai.request.model", model
    yield "gen_ai.response.model", row["underlying_model"] or model
    # The provider's own id of its answer is not in the log.
    yield "gateway.log_id", str(row["id"])
    reason = finish_reason_of(row["finish_reason"], row["unified_finish_reason"])
    yield "gen_ai.response.finish_reasons", [reason]
    for name, column in _COLUMNS.items():
        if row[column] is not None:
            yield name, row[column]
    if row["streamed"]:
        yield "gen_ai.request.stream", True
        if row["time_to_first_token"] is not None:
            yield "gen_ai.response.time_to_first_chunk", row["time_to_first_token"] / 1000
    if row["cost"] is not None:
        # Langfuse's own name: the conventions have none.
        yield "gen_ai.usage.cost", float(row["cost"])
    for name in ("organization_id", "project_id", "api_key_id"):
        yield f"gateway.{name}", str(row[name])
    if row["has_error"]:
        yield "error.type", str(row["status_code"] or "error")
    asked = _asked(row["messages"])
    if asked:
        yield "gen_ai.input.messages", asked
    if row["content"] is not None:
        parts = [{"type": "text", "content": row["content"]}]
        answer = _text([{"role": "assistant", "parts": parts, "finish_reason": reason}])
        if answer:
            yield "gen_ai.output.messages", answer


def _asked(stored: str | None) -> str:
    """Return the prompt as the conventions' messages; empty if none is stored or it is too long."""
    messages = json.loads(stored) if stored else None
    if not isinstance(messages, list):
        return ""
    return _text([_message(one) for one in messages if isinstance(one, dict)])


def _message(message: dict[str, Any]) -> dict[str, Any]:
    said = message.get("content")
    parts = said if isinstance(said, list) else [said] if isinstance(said, str) else []
    return {"role": str(message.get("role", "user")), "parts": [_part(one) for one in parts]}


def _part(part: Any) -> dict[str, Any]:
    """Return a part of a message: its text, else only its type."""
    if isinstance(part, str):
        return {"type": "text", "content": part}
    fields = part if isinstance(part, dict) else {}
    if isinstance(fields.get("text"), str):
        return {"type": "text", "content": fields["text"]}
    return {"type": str(fields.get("type", "unknown"))}


def _text(messages: list[dict[str, Any]]) -> str:
    text = msgspec.json.encode(messages).decode() if messages else ""
    return text if len(text) <= MAX_CHARACTERS else ""


def _attribute(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": _value(value)}


def _value(value: Any) -> dict[str, Any]:
    # Before int: it is one of them.
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _nanoseconds(moment: datetime) -> str:
    """Return a moment as OTLP's JSON writes 64-bit numbers: as a string."""
    return str(int(moment.timestamp() * 1000) * 1_000_000)
