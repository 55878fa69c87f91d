"""Encrypted reasoning of the sandbox, as OpenAI encrypts it; the sandbox recognizes its own by it."""

from __future__ import annotations

from hashlib import sha256

_MARK = "gAAAAA"


def signature_of(item_id: str) -> str:
    """Return the encrypted content of a reasoning item."""
    return _MARK + sha256(f"sandbox:{item_id}".encode()).hexdigest()
