"""OpenAI Responses: names and constants on the wire."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from apps.gateway.canonical.events import OpaqueDelta
from apps.gateway.dialects.reading.fields import Record

# How xAI calls the steps of its `x_search`.
_STEPS_OF_X_SEARCH: Final = frozenset(
    {"x_keyword_search", "x_semantic_search", "x_user_search", "x_thread_fetch", "view_x_video"}
)


def is_hosted_call(item: dict[str, Any]) -> bool:
    """Return whether an item is a call that its provider runs: no client answers it."""
    return item.get("type") == "custom_tool_call" and item.get("name") in _STEPS_OF_X_SEARCH


# Items whose content the canonical language has words for; any other stands whole in its marks.
SAID: Final = frozenset({"message", "reasoning", "image_generation_call", "function_call", "custom_tool_call"})
# The fields of that content.
_CONTENT: Final = frozenset(
    {"content", "summary", "encrypted_content", "arguments", "input", "call_id", "name", "namespace", "result"}
)
# Fields of an event that say where it belongs; the client side has its own.
_PLACES: Final = frozenset({"output_index", "sequence_number"})


def mark(at: int, **data: Any) -> OpaqueDelta:
    """Return a mark for the item that stands `at` this place: one of

    `item` (it begins, or is gone on with), `done` (it is over), `event` (a provider's own event of it), `part` (the
    next part of its text begins), `annotation` (a note on its text that no other format has).
    """
    return OpaqueDelta(dialect=NAME, of="stream", data={"at": at, **data})


def around_of(wire: Record) -> Record:
    """Return the fields of an item besides its content."""
    return {name: value for name, value in wire.items() if name not in _CONTENT}


def unplaced(event: Record) -> Record:
    """Return a provider's event of an item without its place."""
    return {name: value for name, value in event.items() if name not in _PLACES}


NAME: Final = "responses"
FRAMING: Final = "sse"

# How thinking of this format is marked on its way through clients (others use the same word): its summary, and what
# only its maker can read. Thinking in the open has a mark of its own, because not every client keeps the two apart.
SIGNATURE_FORMAT: Final = "openai-responses-v1"
UNSIGNED_FORMAT: Final = "openai-responses-v1-text"

# Values of `include`: encrypted thinking, log probabilities.
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
LOGPROBS: Final = "message.output_text.logprobs"
# The field beside the input for the system prompt; a client's message that it became bears its name.
INSTRUCTIONS: Final = "instructions"
# Marks where a part of the prompt ends that may be cached.
BREAKPOINT: Final = "prompt_cache_breakpoint"
EXPLICIT: Final = {"mode": "explicit"}

# The prefix of reasoning items' ids.
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
