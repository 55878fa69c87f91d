"""Makes sound, pictures and vectors of texts, and texts of sound, always the same way. Pure.

Sound cannot be listened to. A recording contains its text between `SAYS:` and a zero byte, in UTF-8; without that it is
silent.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from functools import lru_cache
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


MAX_SIDE = 4096
"""Pixels of a side."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_STRIPES = (b"\xf0", b"\x0f")


def paint(size: str, words: str) -> bytes:
    """Return a PNG of `size`, as in `64x48`: stripes in two colors that the words decide."""
    width, height = (min(max(int(side), 1), MAX_SIDE) for side in size.split("x"))
    digest = sha256(words.encode()).digest()
    row = b"\0" + _STRIPES[digest[6] % 2] * -(-width // 8)
    return b"".join(
        (
            _SIGNATURE,
            # One bit a pixel, which is the number of a color.
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0)),
            _chunk(b"PLTE", digest[:6]),
            _chunk(b"IDAT", zlib.compress(row * height, 6)),
            _chunk(b"IEND", b""),
        )
    )


def size_of(aspect_ratio: str | None) -> str:
    """Return a small size of a ratio such as `16:9`; empty for any other text."""
    width, colon, height = (aspect_ratio or "").partition(":")
    return f"{int(width) * 16}x{int(height) * 16}" if colon and width.isdecimal() and height.isdecimal() else ""


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


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
