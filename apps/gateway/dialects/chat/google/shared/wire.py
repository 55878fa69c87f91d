"""Google generateContent: names and constants on the wire."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from apps.gateway.canonical.events import FinishReason
from apps.gateway.dialects.reading.fields import Record

NAME: Final = "google"
FRAMING: Final = "sse"

# How thinking that only Gemini can verify is marked on its way through clients; others use the same word.
SIGNATURE_FORMAT: Final = "google-gemini-v1"
# The id of a block of thinking that is nothing but the signature of a text, or (with its number) of an image.
TEXT_SIGNATURE: Final = "text"
IMAGE_SIGNATURE: Final = "image-"

# Google's words for why a model stopped. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "OTHER": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "IMAGE_OTHER": "content_filter",
}
# Google's word for why a model stopped, where another maker's did.
_WORDS: Final = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
# Words that say that the model's answer is of no use; asking again may help.
FAILURE_WORDS: Final = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
    }
)

encode = msgspec.json.Encoder().encode


def new_id(prefix: str) -> str:
    """Return an id for what Google gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def without_none(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def finish_word(reason: FinishReason, native: str | None) -> str:
    """Return Google's word for why a model stopped: the provider's own where it is one for the same."""
    said = "stop" if reason == "tool_calls" else reason
    if native is not None and (native == "STOP" or native in FINISH_REASONS) and _meaning(native) == said:
        return native
    return _WORDS.get(reason, "STOP")


def _meaning(word: str) -> FinishReason:
    return FINISH_REASONS.get(word, "stop")


def write_time(seconds: int) -> str:
    """Return a moment in Unix seconds as Google writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
