"""Makes vectors, the same one for the same text. Pure; knows numbers and nothing else."""

from __future__ import annotations

import struct
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256

USUAL_LENGTH = 8


@lru_cache(maxsize=1024)
def vector_of(text: str, length: int) -> tuple[float, ...]:
    """Return the vector of a text: numbers from -0.5 to 0.5 that float32 holds exactly."""
    digest = sha256(text.encode("utf-8", "replace")).digest()
    return tuple((digest[place % len(digest)] - 128) / 256 for place in range(length))


@lru_cache(maxsize=1024)
def in_base64(vector: tuple[float, ...]) -> str:
    """Return a vector as base64 of float32, little-endian."""
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
