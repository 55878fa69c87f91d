"""OpenAI Chat Completions: client side and provider side of the dialect. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.openai.client.logged_request import logged_choice, logged_request, logged_results
from apps.gateway.dialects.openai.client.read_request import read_request
from apps.gateway.dialects.openai.client.write_reply import write_events, write_reply
from apps.gateway.dialects.openai.provider.flavor import Facts
from apps.gateway.dialects.openai.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.openai.provider.write_request import path, write_request
from apps.gateway.dialects.openai.shared.failures import read_failure, write_error
from apps.gateway.dialects.openai.shared.wire import FRAMING, NAME

__all__ = [
    "FRAMING",
    "NAME",
    "SEVERAL_ANSWERS",
    "Facts",
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

# A call may ask for several answers (`n`).
SEVERAL_ANSWERS = True
