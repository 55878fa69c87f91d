"""Formats of requests that are answered with media or read it: images, speech, transcripts.

Here is the multipart form in which files go to providers and come from clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

MULTIPART = "multipart/form-data"


class FormField(NamedTuple):
    """One part of a form; `filename` is None unless it is a file."""

    name: str
    filename: str | None
    data: bytes


class ImageFile(NamedTuple):
    """An image's bytes and media type."""

    media_type: str
    data: bytes


class FormFile(NamedTuple):
    """A file under a name of its own; `digest` is one of its data, which is looked at no more."""

    filename: str
    media_type: str
    data: bytes
    digest: str


Field = tuple[str, str | ImageFile | FormFile]


def boundary_of(fields: Iterable[Field]) -> str:
    """Return a boundary that does not occur in the fields: to occur it would have to hold its own digest."""
    digest = sha256()
    for name, value in fields:
        digest.update(name.encode())
        if isinstance(value, ImageFile):
            digest.update(value.data)
        else:
            digest.update((value.digest if isinstance(value, FormFile) else value).encode("utf-8", "replace"))
    return digest.hexdigest()


def write_form(fields: Iterable[Field], boundary: str) -> bytes:
    """Return the body; an image is a file named after its field. Names and files' types are the gateway's own."""
    parts: list[bytes] = []
    for name, value in fields:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'
        if isinstance(value, str):
            parts += [f"{head}\r\n\r\n{value}\r\n".encode("utf-8", "replace")]
            continue
        named = f"{name.rstrip('[]')}.{value.media_type.rpartition('/')[2]}"
        filename = value.filename if isinstance(value, FormFile) else named
        head += f'; filename="{filename}"\r\nContent-Type: {value.media_type}'
        parts += [f"{head}\r\n\r\n".encode(), value.data, b"\r\n"]
    return b"".join((*parts, f"--{boundary}--\r\n".encode()))
