"""Google generateContent, provider side: writes images, audio and documents: bytes inline, or an address that Google
fetches.

Knows media types and data URLs. Must never fetch anything.
"""

from __future__ import annotations

import re
from mimetypes import MimeTypes
from urllib.parse import urlsplit

from apps.gateway.canonical.chat import Audio, File, Image
from apps.gateway.dialects.chat.google.shared.wire import Record, without_none
from apps.kernel.errors import InvalidRequest

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]+)*;base64,", re.IGNORECASE)
_TYPES = MimeTypes()
for _type in ("image/webp", "image/heic", "image/heif", "audio/flac", "audio/aac", "audio/ogg", "text/markdown"):
    _TYPES.add_type(_type, f".{_type.partition('/')[2]}")
_TYPES.add_type("text/markdown", ".md")
_BLANKS = re.compile(r"\s+")
_CORRECT = {"image/jpg": "image/jpeg", "audio/mpeg": "audio/mp3", "audio/x-wav": "audio/wav"}
_SOUNDS = {"pcm16": "audio/pcm"}


def write_image(image: Image) -> Record:
    """Return an image. Raises InvalidRequest for a data URL that cannot be read."""
    return _located(image.url, "image/png", None)


def write_audio(audio: Audio) -> Record:
    """Return sound."""
    return _inline(_SOUNDS.get(audio.format) or f"audio/{audio.format}", audio.data)


def write_file(file: File) -> Record:
    """Return a document. Raises InvalidRequest for one whose kind is nowhere said."""
    known = file.media_type or _type_of(file.filename)
    if file.data is not None:
        if file.data.startswith("data:"):
            return _located(file.data, known, known)
        if known is None:
            raise _refused("A file says neither its media type nor a filename that tells it")
        return _inline(known, file.data)
    return _located(file.url or file.file_id or "", None, known)


def _located(url: str, otherwise: str | None, known: str | None) -> Record:
    """Return what a URL holds or points to. `otherwise` is the type of a data URL that states none."""
    if url[:5].lower() != "data:":
        media_type = known or _type_of(urlsplit(url).path)
        return {"fileData": without_none(mimeType=media_type and _CORRECT.get(media_type, media_type), fileUri=url)}
    head = _DATA_URL.match(url)
    media_type = (head["type"].lower() or otherwise) if head else None
    if head is None or media_type is None:
        raise _refused("A data URL is not of the form data:<media type>;base64,<data>")
    return _inline(media_type, url[head.end() :])


def _inline(media_type: str, data: str) -> Record:
    if _BLANKS.search(data):
        data = _BLANKS.sub("", data)
    return {"inlineData": {"mimeType": _CORRECT.get(media_type, media_type), "data": data}}


def _type_of(name: str | None) -> str | None:
    return _TYPES.guess_type(name)[0] if name else None


def _refused(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="unsupported_feature", param="messages")
