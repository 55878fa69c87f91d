"""Anthropic's messages format, towards clients and towards providers. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.anthropic.answer_in import read_events, read_reply
from apps.gateway.dialects.anthropic.answer_out import write_events, write_reply
from apps.gateway.dialects.anthropic.counting import count_request, read_count
from apps.gateway.dialects.anthropic.failures import read_failure, write_error
from apps.gateway.dialects.anthropic.logged import logged_choice, logged_request, logged_results
from apps.gateway.dialects.anthropic.open_turn import seal
from apps.gateway.dialects.anthropic.request_in import read_prompt, read_request
from apps.gateway.dialects.anthropic.request_out import headers, path, write_request
from apps.gateway.dialects.anthropic.wire import FRAMING, NAME, THINKS_WHEN_ASKED

__all__ = [
    "FRAMING",
    "NAME",
    "THINKS_WHEN_ASKED",
    "count_request",
    "headers",
    "logged_choice",
    "logged_request",
    "logged_results",
    "path",
    "read_count",
    "read_events",
    "read_failure",
    "read_prompt",
    "read_reply",
    "read_request",
    "seal",
    "write_error",
    "write_events",
    "write_reply",
    "write_request",
]
