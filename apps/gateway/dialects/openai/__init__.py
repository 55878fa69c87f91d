"""OpenAI's chat completions format, towards clients and towards the many providers that speak it. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.openai.answer_in import read_events, read_reply
from apps.gateway.dialects.openai.answer_out import write_events, write_reply
from apps.gateway.dialects.openai.failures import read_failure, write_error
from apps.gateway.dialects.openai.logged import logged_choice, logged_request, logged_results
from apps.gateway.dialects.openai.request_in import read_request
from apps.gateway.dialects.openai.request_out import path, write_request
from apps.gateway.dialects.openai.wire import FRAMING, NAME

__all__ = [
    "FRAMING",
    "NAME",
    "logged_choice",
    "logged_request",
    "logged_results",
    "path",
    "read_events",
    "read_failure",
    "read_reply",
    "read_request",
    "write_error",
    "write_events",
    "write_reply",
    "write_request",
]
