"""OpenAI's Responses format, towards providers that speak it. Pure functions; no side towards clients."""

from __future__ import annotations

from apps.gateway.dialects.responses.provider.count_tokens import count_request, read_count
from apps.gateway.dialects.responses.provider.failures import read_failure
from apps.gateway.dialects.responses.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.responses.provider.write_request import path, seal, write_request
from apps.gateway.dialects.responses.shared.wire import FRAMING, NAME

__all__ = [
    "FRAMING",
    "NAME",
    "count_request",
    "path",
    "read_count",
    "read_events",
    "read_failure",
    "read_reply",
    "seal",
    "write_request",
]
