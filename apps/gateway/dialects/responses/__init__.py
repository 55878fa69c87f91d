"""OpenAI's Responses format, towards providers that speak it. Pure functions; no side towards clients."""

from __future__ import annotations

from apps.gateway.dialects.responses.answer_in import read_events, read_reply
from apps.gateway.dialects.responses.counting import count_request, read_count
from apps.gateway.dialects.responses.failures import read_failure
from apps.gateway.dialects.responses.request_out import path, seal, write_request
from apps.gateway.dialects.responses.wire import FRAMING, NAME

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
