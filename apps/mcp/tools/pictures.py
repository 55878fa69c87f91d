"""Pictures in results of tools: as bytes, or as a link to where they are. Pure."""

from __future__ import annotations

from typing import Any, Final

_UNKNOWN: Final = "image/png"


def picture_block(url: str) -> dict[str, Any]:
    """Return the block of content for a picture, a `data:` or an `https:` URL."""
    if not url.startswith("data:"):
        return {"type": "resource_link", "uri": url, "name": "image"}
    head, _, data = url.removeprefix("data:").partition(",")
    return {"type": "image", "data": data, "mimeType": head.partition(";")[0] or _UNKNOWN}
