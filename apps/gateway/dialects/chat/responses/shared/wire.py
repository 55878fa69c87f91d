"""OpenAI Responses: names and constants on the wire.

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
SIGNATURE_FORMAT: Final = "openai-responses-v1"
UNSIGNED_FORMAT: Final = "openai-responses-v1-text"

# What is asked for with `include`: encrypted thinking, log probabilities.
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
LOGPROBS: Final = "message.output_text.logprobs"
# The field beside the input for the system prompt; a client's message that it became bears its name.
INSTRUCTIONS: Final = "instructions"
# Marks where a part of the prompt ends that may be cached.
BREAKPOINT: Final = "prompt_cache_breakpoint"
EXPLICIT: Final = {"mode": "explicit"}

# What the ids of reasoning items begin with.
REASONING_ID: Final = "rs_"

# Ids of items and calls may not be longer.
MAX_ID: Final = 64

encode = msgspec.json.Encoder().encode


def new_id(prefix: str) -> str:
    """Return an id for what a provider gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def without_none(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def text_of(value: Any) -> str | None:
    """Return a string that says something, else None."""
    return value if isinstance(value, str) and value else None
