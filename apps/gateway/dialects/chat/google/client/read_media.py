"""Google generateContent, client side: reads media: bytes inline, and files by address.

Knows media types and both alphabets of base64. Must never fetch anything.
"""

from __future__ import annotations

from apps.gateway.canonical.chat import Audio, File, Image
from apps.gateway.dialects.reading.fields import Record, filled_string, optional, required, string

_URLSAFE = str.maketrans("-_", "+/")
# Names of kinds of sound that other formats have another name for.
_SOUNDS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
_BLOB_FIELDS = frozenset({"mimeType", "data", "displayName"})
_FILE_FIELDS = frozenset({"mimeType", "fileUri", "displayName"})


def read_blob(wire: Record) -> Image | Audio | File | None:
    """Read `inlineData`; None where it says more than the canonical language does."""
    if not wire.keys() <= _BLOB_FIELDS:
        return None
    media_type = required(wire, "mimeType", filled_string).lower()
    data = _standard(required(wire, "data", filled_string))
    name = optional(wire, "displayName", string)
    kind, _, subtype = media_type.partition("/")
    if kind == "image" and name is None:
        return Image(url=f"data:{media_type};base64,{data}")
    if kind == "audio" and name is None:
        return Audio(data=data, format=_SOUNDS.get(subtype, subtype))
    return File(data=data, media_type=media_type, filename=name)


def read_file(wire: Record) -> Image | File | None:
    """Read `fileData`; None where it says more than the canonical language does."""
    if not wire.keys() <= _FILE_FIELDS:
        return None
    address = required(wire, "fileUri", filled_string)
    media_type, name = optional(wire, "mimeType", string) or None, optional(wire, "displayName", string)
    if media_type is not None and media_type.startswith("image/") and name is None and _is_web(address):
        return Image(url=address)
    return File(url=address, media_type=media_type, filename=name)


def _is_web(address: str) -> bool:
    return address.startswith(("https://", "http://")) and "generativelanguage.googleapis.com" not in address


def _standard(data: str) -> str:
    """Return base64 in the alphabet that every format takes; Google's clients also write the one for URLs."""
    if "-" in data or "_" in data:
        data = data.translate(_URLSAFE)
    missing = -len(data) % 4
    return data + "=" * missing if missing and not data[-1].isspace() and "\n" not in data else data
