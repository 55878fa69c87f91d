"""OpenAI's legacy completions: a client side only, for clients that send a prompt in place of messages. Pure functions.

Each prompt is a chat of one message, so that every provider of chats answers it; the log keeps them as its messages.
"""

from __future__ import annotations

from apps.gateway.dialects.completions.read_request import read_request
from apps.gateway.dialects.completions.write_reply import write_events, write_reply
from apps.gateway.dialects.openai.client.logged_request import logged_choice, logged_request, logged_results
from apps.gateway.dialects.openai.shared.failures import write_error

__all__ = [
    "logged_choice",
    "logged_request",
    "logged_results",
    "read_request",
    "write_error",
    "write_events",
    "write_reply",
]
