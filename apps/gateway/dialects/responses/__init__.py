"""OpenAI Responses: both sides of the dialect. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.openai.shared.failures import write_error
from apps.gateway.dialects.responses.client.asked import Asked
from apps.gateway.dialects.responses.client.logged_request import logged_choice, logged_request, logged_results
from apps.gateway.dialects.responses.client.read_request import read_prompt, read_request, read_wire
from apps.gateway.dialects.responses.client.write_reply import response_of, write_events, write_reply
from apps.gateway.dialects.responses.provider.count_tokens import count_request, read_count
from apps.gateway.dialects.responses.provider.failures import read_failure
from apps.gateway.dialects.responses.provider.flavor import Flavor as Facts
from apps.gateway.dialects.responses.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.responses.provider.write_request import path, signature_format, write_request
from apps.gateway.dialects.responses.shared.wire import FRAMING, NAME

__all__ = [
    "FRAMING",
    "NAME",
    "Asked",
    "Facts",
    "count_request",
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
    "read_wire",
    "response_of",
    "signature_format",
    "write_error",
    "write_events",
    "write_reply",
    "write_request",
]
