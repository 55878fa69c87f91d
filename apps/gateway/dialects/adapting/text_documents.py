"""Documents of plain text, for models whose format has no documents, or only PDFs: they are said as text."""
# alone: two formats that differ in everything else say them the same way

from __future__ import annotations

from base64 import b64decode
from typing import Final

from apps.gateway.canonical.chat import File

_PLAIN: Final = "text/plain"


def text_of_document(file: File) -> str | None:
    """Return a document of plain text as text, behind its title where it has one; None for any other document."""
    media_type, data = file.media_type, file.data or ""
    if data.startswith("data:"):
        head, _, data = data.removeprefix("data:").partition(",")
        media_type = head.partition(";")[0] if head.endswith(";base64") else None
    if media_type != _PLAIN:
        return None
    try:
        text = b64decode(data, validate=True).decode()
    except ValueError:
        return None
    return f"{file.filename}\n{text}" if file.filename else text
