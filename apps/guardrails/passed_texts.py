"""Passed texts: those that an outside guard found nothing in lately, so that it is not asked about them again.

An agent sends its whole conversation with each request. Only digests are kept, keyed with a secret of the process,
and for a few minutes: the guard's own policy may change.
"""

# alone: a memory with bounds of its own, beside a client that sends
from __future__ import annotations

import hashlib
import secrets
import time
from typing import Final

# Texts that a process remembers, and seconds for which it does: half of either at least.
MAX_TEXTS: Final = 20_000
MAX_SECONDS: Final = 600.0


class PassedTexts:
    """Digests of texts in two generations; the older one is forgotten when the newer is full or old."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()
        self._since = time.monotonic()

    def digest_of(self, judged_by: str, text: str) -> bytes:
        """Return the digest of a text for a guard, its configuration and the text's role."""
        key = judged_by.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(len(key).to_bytes(8) + key, key=self._secret, digest_size=16)
        digest.update(text.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def has(self, digest: bytes) -> bool:
        """Tell whether a text passed lately."""
        self._turn()
        return digest in self._new or digest in self._old

    def add(self, digest: bytes) -> None:
        """Remember a text that passed."""
        self._turn()
        self._new.add(digest)

    def forget_all(self) -> None:
        """Forget all texts."""
        self._new, self._old = set(), set()

    def _turn(self) -> None:
        if len(self._new) >= MAX_TEXTS // 2 or time.monotonic() - self._since > MAX_SECONDS / 2:
            is_old = time.monotonic() - self._since > MAX_SECONDS
            self._old, self._new = set() if is_old else self._new, set()
            self._since = time.monotonic()
