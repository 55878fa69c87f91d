"""Anthropic Messages: client side and provider side of the dialect. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.anthropic.client.logged_request import logged_choice, logged_request, logged_results
from apps.gateway.dialects.anthropic.client.read_request import read_prompt, read_request
from apps.gateway.dialects.anthropic.client.write_reply import write_events, write_reply
from apps.gateway.dialects.anthropic.provider.count_tokens import count_request, read_count
from apps.gateway.dialects.anthropic.provider.flavor import Flavor as Facts
from apps.gateway.dialects.anthropic.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.anthropic.provider.thinking_signatures import signature_format
from apps.gateway.dialects.anthropic.provider.write_request import headers, path, write_request
from apps.gateway.dialects.anthropic.shared.failures import read_failure, write_error
from apps.gateway.dialects.anthropic.shared.wire import FRAMING, NAME, THINKS_WHEN_ASKED
from apps.kernel.request_id import OF_ANTHROPIC

__all__ = [
    "FRAMING",
    "LOGPROBS",
    "NAME",
    "REQUEST_ID_HEADER",
    "THINKS_WHEN_ASKED",
    "Facts",
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
    "signature_format",
    "write_error",
    "write_events",
    "write_reply",
    "write_request",
]

# Where clients of this format look for the request's id.
REQUEST_ID_HEADER = OF_ANTHROPIC
# The format cannot ask for the probabilities of tokens.
LOGPROBS = False
