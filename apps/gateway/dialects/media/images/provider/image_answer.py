"""Image answers: media types and data URLs that more than one image dialect needs.

Knows media types and how formats of images park what no other has words for. Must never know a provider.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from apps.gateway.dialects.reading.image_type import image_type_of

# Under this name an answer keeps what only requests for images are told: `revised_prompt`, and what is echoed.
NAME_OF_EXTRAS: Final = "images"
ECHOED: Final = ("background", "output_format", "quality", "size")


def media_type_of(output_format: str | None) -> str:
    """Return the media type of an `output_format`; unstated it is PNG."""
    return f"image/{output_format or 'png'}"


def sniff_base64(text: str) -> str | None:
    """Return the media type that an image's first bytes tell, of an image in base64."""
    try:
        return image_type_of(b64decode(text[:24]))
    except ValueError:
        return None
