"""The seals that the sandbox puts on its thinking, as OpenAI does, and by which it knows it again."""

from __future__ import annotations

from hashlib import sha256

_MARK = "gAAAAA"


def seal_of(item_id: str) -> str:
    """Return the seal of an item of thinking."""
    return _MARK + sha256(f"sandbox:{item_id}".encode()).hexdigest()
