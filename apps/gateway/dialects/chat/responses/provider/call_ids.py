"""OpenAI Responses, provider side: ids of calls and items within the allowed length: one to one within a conversation,
and the same each time.

Knows lengths. Must never know whose ids they are.
"""

from __future__ import annotations

from hashlib import sha256

from apps.gateway.dialects.adapting.signed_call_ids import split_signature
from apps.gateway.dialects.chat.responses.shared.wire import MAX_ID

_DIGITS = 40


class CallIds:
    """Which id each of the client's calls has here. An id that fits stays as it is; a signature in it is left out."""

    def __init__(self) -> None:
        self._ours: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """Return the id for a call that the client calls `name`."""
        found = self._ours.get(name)
        if found is None:
            bare = split_signature(name)[0] or name
            found = bare if len(bare) <= MAX_ID and bare not in self._taken else shortened(name, "call_")
            self._ours[name] = found
            self._taken.add(found)
        return found


def shortened(name: str, prefix: str) -> str:
    """Return an id that stands for one that is too long."""
    return prefix + sha256(name.encode("utf-8", "replace")).hexdigest()[:_DIGITS]
