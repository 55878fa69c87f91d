"""Image type detection by magic bytes: PNG, JPEG, GIF and WebP, the formats that providers take.

Exact about the first bytes, because bytes without an image may be text (ADR 0104 says why no library does it).
"""

from __future__ import annotations

from typing import Final

# How many of the first bytes tell.
HEAD: Final = 12
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type_of(data: bytes) -> str | None:
    """Return the media type that the first bytes tell, None when they begin none of these images."""
    if data[:4] == b"RIFF" and data[8:HEAD] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), None)
