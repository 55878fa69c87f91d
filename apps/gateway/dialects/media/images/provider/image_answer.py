"""Image answers: media types and data URLs that more than one image dialect needs."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from apps.gateway.dialects.reading.image_type import image_type_of

# The name under which an answer keeps fields for image clients alone: `revised_prompt`, and echoed fields.
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
