"""Multipart form writer (`multipart/form-data`). The boundary is derived from the content, so that nothing inside can
end it.

Knows the format of forms. Must never know what a field means.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from apps.gateway.dialects.images.provider.image_request import ImageFile

Field = tuple[str, str | ImageFile]
MULTIPART = "multipart/form-data"


def boundary_of(fields: Iterable[Field]) -> str:
    """Return a boundary that does not occur in the fields: to occur it would have to hold its own digest."""
    digest = sha256()
    for name, value in fields:
        digest.update(name.encode())
        digest.update(value.data if isinstance(value, ImageFile) else value.encode("utf-8", "replace"))
    return digest.hexdigest()


def write_form(fields: Iterable[Field], boundary: str) -> bytes:
    """Return the body; an image is a file named after its field. Names are the gateway's own."""
    parts: list[bytes] = []
    for name, value in fields:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'
        if isinstance(value, ImageFile):
            filename = f"{name.rstrip('[]')}.{value.media_type.rpartition('/')[2]}"
            head += f'; filename="{filename}"\r\nContent-Type: {value.media_type}'
            parts += [f"{head}\r\n\r\n".encode(), value.data, b"\r\n"]
        else:
            parts += [f"{head}\r\n\r\n{value}\r\n".encode("utf-8", "replace")]
    return b"".join((*parts, f"--{boundary}--\r\n".encode()))
