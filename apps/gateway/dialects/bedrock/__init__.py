"""Amazon Bedrock's Converse. Pure functions; no side towards clients."""

from __future__ import annotations

from apps.gateway.dialects.bedrock.provider.count_tokens import count_request, read_count
from apps.gateway.dialects.bedrock.provider.failures import read_failure
from apps.gateway.dialects.bedrock.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.bedrock.provider.write_request import headers, path, seal, write_request
from apps.gateway.dialects.bedrock.shared.wire import FRAMING, MEDIA_URLS, NAME, THINKS_WHEN_ASKED

__all__ = [
    "FRAMING",
    "MEDIA_URLS",
    "NAME",
    "THINKS_WHEN_ASKED",
    "count_request",
    "headers",
    "path",
    "read_count",
    "read_events",
    "read_failure",
    "read_reply",
    "seal",
    "write_request",
]
