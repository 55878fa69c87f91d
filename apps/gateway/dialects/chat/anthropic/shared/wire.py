"""Anthropic Messages, both sides: names and constants on the wire."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import CacheMark
from apps.gateway.canonical.events import FinishReason
from apps.gateway.dialects.reading.call_arguments import is_empty_arguments
from apps.gateway.dialects.reading.fields import BOUNDS
from apps.kernel.json_bounds import decode_text_within

# The field of a call that says whether the model made it, or a program at the provider.
CALLER: Final = "caller"
# The field of a message that says why its provider refused to answer.
STOP_DETAILS: Final = "stop_details"
NAME: Final = "anthropic"
FRAMING: Final = "sse"
VERSION: Final = "2023-06-01"
# Models of this format do not think unless they are asked to.
THINKS_WHEN_ASKED: Final = True

# How thinking that Anthropic signed is marked: only its maker takes the signature back.
SIGNATURE_FORMAT: Final = "anthropic-claude-v1"

# Anthropic's words for why a model stopped. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
STOP_REASONS: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

encode = msgspec.json.Encoder().encode


def cache_control(mark: CacheMark) -> dict[str, Any]:
    """Return a cache mark."""
    return {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": mark.ttl}


def read_input(arguments: str) -> msgspec.Raw:
    """Return a call's arguments as the object that the format wants: as they were written where they are one.

    No text at all, or JSON's null, means no arguments; text that is no object is put into one, as `arguments`.
    """
    if is_empty_arguments(arguments):
        return msgspec.Raw(b"{}")
    try:
        is_object = isinstance(decode_text_within(arguments, BOUNDS), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_object = False
    return msgspec.Raw(arguments.encode()) if is_object else msgspec.Raw(encode({"arguments": arguments}))


def new_id(prefix: str) -> str:
    """Return an id for what a provider gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def call_id(name: str) -> str:
    """Return a call's id with nothing in it that Anthropic refuses; the same for a call and its result."""
    return _NOT_IN_IDS.sub("_", name)


_NOT_IN_IDS = re.compile("[^a-zA-Z0-9_-]")
