"""Names and words of the Responses format that more than one direction needs.

Knows the wire. Must never know a provider or a model by name.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, TypeAlias

import msgspec

Record: TypeAlias = dict[str, Any]

NAME: Final = "responses"
FRAMING: Final = "sse"

# How thinking of this format is marked on its way through clients (others use the same word): its summary, and what
# only its maker can read. Thinking in the open has a mark of its own, because not every client keeps the two apart.
SEAL: Final = "openai-responses-v1"
OPEN_SEAL: Final = "openai-responses-v1-text"

# Ids of items and calls may not be longer.
MAX_ID: Final = 64

encode = msgspec.json.Encoder().encode


def mint(prefix: str) -> str:
    """Return an id for what a provider gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def stated(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def text_of(value: Any) -> str | None:
    """Return a string that says something, else None."""
    return value if isinstance(value, str) and value else None
