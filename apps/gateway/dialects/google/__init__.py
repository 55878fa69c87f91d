"""Google generateContent: the client side and the provider side of the dialect. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.google.client.errors import error_for_clients, write_error
from apps.gateway.dialects.google.client.logged_request import logged_choice, logged_request, logged_results
from apps.gateway.dialects.google.client.read_request import read_prompt, read_request
from apps.gateway.dialects.google.client.write_reply import write_array, write_events, write_reply
from apps.gateway.dialects.google.provider.count_tokens import count_request, read_count
from apps.gateway.dialects.google.provider.failures import read_failure
from apps.gateway.dialects.google.provider.flavor import Flavor as Facts
from apps.gateway.dialects.google.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.google.provider.write_request import path, write_request
from apps.gateway.dialects.google.shared.wire import FRAMING, NAME

__all__ = [
    "FRAMING",
    "NAME",
    "Facts",
    "count_request",
    "error_for_clients",
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
    "write_array",
    "write_error",
    "write_events",
    "write_reply",
    "write_request",
]
