"""Makes sound of texts and texts of sound, always the same way; neither can be listened to. Pure.

A recording contains its text between `SAYS:` and a zero byte, in UTF-8; without that it is silent.
"""

from __future__ import annotations

import struct
from hashlib import sha256

BLOCK = 480
"""Bytes of each word."""

RATE = 8_000
"""Bytes of a second of what has no head that tells another."""

_MARK, _END = b"SAYS:", b"\0"


def spoken(text: str) -> tuple[bytes, ...]:
    """Return the sound of a text, a block for each of its words."""
    return tuple((sha256(word.encode("utf-8", "replace")).digest() * BLOCK)[:BLOCK] for word in text.split())


def heard_in(data: bytes) -> str:
    """Return the text of a recording."""
    _, _, rest = data.partition(_MARK)
    return rest.partition(_END)[0].decode("utf-8", "replace")


def seconds_of(data: bytes) -> float:
    """Return how long a recording is: as a WAV file's head tells, else by its size."""
    if len(data) < 44 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return len(data) / RATE
    (rate,) = struct.unpack_from("<I", data, 28)
    (size,) = struct.unpack_from("<I", data, 40)
    return size / rate if rate else 0.0


def recording(text: str, seconds: float = 2.0) -> bytes:
    """Return a WAV file of so many seconds, 8,000 samples of a byte in each, that says a text."""
    size = round(seconds * RATE)
    samples = (_MARK + text.encode() + _END if text else b"").ljust(size, b"\x80")
    if len(samples) > size:
        raise ValueError("so much cannot be said in so little time")
    kind = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, RATE, 1, 8)
    return struct.pack("<4sI4s", b"RIFF", 36 + size, b"WAVE") + kind + struct.pack("<4sI", b"data", size) + samples
