"""Google's `generateContent`, towards AI Studio and whoever else speaks it. Pure functions; no side towards clients."""

from __future__ import annotations

from apps.gateway.dialects.google.provider.count_tokens import count_request, read_count
from apps.gateway.dialects.google.provider.failures import read_failure
from apps.gateway.dialects.google.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.google.provider.write_request import path, write_request
from apps.gateway.dialects.google.shared.wire import FRAMING, NAME

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
