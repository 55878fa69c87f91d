"""OpenAI Responses: marks between canonical events that tell the client side where a provider's output items begin and
end, and what only this format says of them. No other format looks at them.
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.events import OpaqueDelta
from apps.gateway.dialects.chat.responses.shared.wire import NAME, Record

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
    """Return what is said of an item besides its content."""
    return {name: value for name, value in wire.items() if name not in _CONTENT}


def unplaced(event: Record) -> Record:
    """Return a provider's event of an item without its place."""
    return {name: value for name, value in event.items() if name not in _PLACES}
