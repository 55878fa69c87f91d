"""Webhooks: rows as JSON lines or one JSON array, signed as in Standard Webhooks. Pure.

The headers are `webhook-id`, `webhook-timestamp` and `webhook-signature` (https://www.standardwebhooks.com).
"""

from __future__ import annotations

from datetime import datetime

from apps.kernel.secrets.webhook_signature import signed_headers
from apps.log_sinks.credentials import WebhookSecret
from apps.log_sinks.sink_request import Destination, SinkBatch, SinkRequest
from apps.logs.serializers import encode, entry_of

JSON_LINES, JSON_ARRAY = "jsonl", "json"
_TYPES = {JSON_LINES: "application/x-ndjson", JSON_ARRAY: "application/json"}


def request_of(to: Destination, credentials: WebhookSecret, batch: SinkBatch, now: datetime) -> SinkRequest:
    """Return the request that posts the rows; `now` is the time that is signed."""
    form = to.options.get("format", JSON_LINES)
    lines = [encode(entry_of(row)) for row in batch.rows]
    body = b"[" + b",".join(lines) + b"]" if form == JSON_ARRAY else b"".join(line + b"\n" for line in lines)
    headers = {"Content-Type": _TYPES[form], **signed_headers(credentials.key, batch.name, now, body)}
    return SinkRequest("POST", to.url, headers, body)
