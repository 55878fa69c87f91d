"""Google's `generateContent`, towards AI Studio and whoever else speaks it. Pure functions; no side towards clients."""

from __future__ import annotations

from apps.gateway.dialects.google.answer_in import read_events, read_reply
from apps.gateway.dialects.google.counting import count_request, read_count
from apps.gateway.dialects.google.failures import read_failure
from apps.gateway.dialects.google.request_out import path, write_request
from apps.gateway.dialects.google.wire import FRAMING, NAME

__all__ = [
    "FRAMING",
    "NAME",
    "count_request",
    "path",
    "read_count",
    "read_events",
    "read_failure",
    "read_reply",
    "write_request",
]
