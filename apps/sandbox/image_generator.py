"""Paints small real pictures, the same one for the same words. Pure; knows PNG and nothing else."""

from __future__ import annotations

import struct
import zlib
from hashlib import sha256

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
