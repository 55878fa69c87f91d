"""Names and words of pictures in answers that more than one format needs.

Knows media types and how formats of pictures park what no other has words for. Must never know a provider.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

# Under this name an answer keeps what only requests for pictures are told: `revised_prompt`, and what is echoed.
NAME_OF_EXTRAS: Final = "images"
ECHOED: Final = ("background", "output_format", "quality", "size")

_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def media_type_of(output_format: str | None) -> str:
    """Return the media type of an `output_format`; unstated it is PNG."""
    return f"image/{output_format or 'png'}"


def sniff_base64(text: str) -> str | None:
    """Return the media type that a picture's first bytes tell, of a picture in base64."""
    try:
        return sniff(b64decode(text[:24]))
    except ValueError:
        return None


def sniff(data: bytes) -> str | None:
    """Return the media type that a picture's first bytes tell, None when they are of none that is taken."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for start, media_type in _STARTS if data.startswith(start)), None)
