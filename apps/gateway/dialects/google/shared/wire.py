"""Names and words of Google's `generateContent` that more than one direction needs.

Knows the wire. Must never know a provider or a model by name.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, TypeAlias

import msgspec

from apps.gateway.canonical.events import FinishReason

Record: TypeAlias = dict[str, Any]

NAME: Final = "google"
FRAMING: Final = "sse"

# How thinking that only Gemini can verify is marked on its way through clients; others use the same word.
SEAL_FORMAT: Final = "google-gemini-v1"
# The id of a block of thinking that is nothing but the seal of a text, or (with its number) of a picture.
TEXT_SEAL: Final = "text"
IMAGE_SEAL: Final = "image-"

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


def mint(prefix: str) -> str:
    """Return an id for what Google gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def stated(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}
