"""Bedrock Converse, provider side: writes images, audio, video and documents as bytes, never as an address.

Knows media types, what bytes of a kind begin with, and Bedrock's rules for the names of documents. An address in S3 is
refused like any other: it would be read with the rights of whoever's credential is used. Must never fetch anything.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from mimetypes import MimeTypes

from apps.gateway.canonical.chat import Audio, File, Image
from apps.gateway.dialects.chat.bedrock.shared.wire import Record, refused
from apps.gateway.dialects.reading.image_type import image_type_of
from apps.kernel.errors import InvalidRequest

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]+)*;base64,", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_URL_SAFE = str.maketrans("-_", "+/")

_PICTURES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_VIDEOS = {
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
_SOUNDS = frozenset({"mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "m4a", "mpeg", "mpga", "pcm", "webm"})
_SOUND_NAMES = {"pcm16": "pcm", "x-wav": "wav"}
_TYPES = MimeTypes()
for _type, _format in (
    _VIDEOS | _DOCUMENTS | {"image/webp": "webp", "video/x-flv": "flv", "video/3gpp": "3gp"}
).items():
    _TYPES.add_type(_type, f".{_format}")
# What a name may not have in it, and how long it may be.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9()\[\]\s-]+")
_LONGEST_NAME = 200
_USUAL_NAME = "document"


class Documents:
    """The names of the documents of a request: each has one of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def name(self, filename: str | None) -> str:
        """Return a name for a document, as near to its file's as Bedrock allows."""
        bare, dot, ending = (filename or "").rpartition(".")
        stem = bare if dot and len(ending) <= 5 else filename or ""
        clean = " ".join(_NOT_IN_NAMES.sub(" ", stem).split())[: _LONGEST_NAME - 8].strip() or _USUAL_NAME
        name, number = clean, 1
        while name in self._taken:
            number += 1
            name = f"{clean} {number}"
        self._taken.add(name)
        return name


def write_image(image: Image, at: str) -> Record:
    """Return an image; `at` is the client's field. Raises InvalidRequest for an address, or for no image."""
    media_type, data = _split(image.url, at)
    return _picture(media_type, data, at)


def write_audio(audio: Audio, at: str) -> Record:
    """Return sound. Raises InvalidRequest for a format that Bedrock does not have."""
    word = _SOUND_NAMES.get(audio.format, audio.format)
    if word not in _SOUNDS:
        raise refused(f"{at}: this model's provider takes no sound as {audio.format[:32]}", at)
    return {"audio": {"format": word, "source": {"bytes": _clean(audio.data, at)}}}


def write_file(file: File, documents: Documents, at: str) -> Record:
    """Return a document; an image or video as what it is. Raises InvalidRequest for one that is not there in full."""
    if file.data is None:
        raise refused(f"{at}: this model's provider takes the bytes of a file, not its address or id", at)
    media_type, data = file.media_type, file.data
    if data[:5].lower() == "data:":
        media_type, data = _split(data, at)
    else:
        data = _clean(data, at)
    head = _head(data)
    media_type = (media_type or (_TYPES.guess_type(file.filename)[0] if file.filename else None) or "").lower()
    if media_type.startswith("image/") or _sniffed(head):
        return _picture(media_type, data, at)
    if media_type in _VIDEOS:
        return {"video": {"format": _VIDEOS[media_type], "source": {"bytes": data}}}
    word = "pdf" if head.startswith(b"%PDF") else _DOCUMENTS.get(media_type)
    if word is None and (media_type.startswith("text/") or media_type in {"application/json", "application/xml"}):
        word = "txt"
    if word is None:
        raise refused(f"{at}: this model's provider takes no files of the type {media_type[:64] or 'unknown'}", at)
    return {"document": {"format": word, "name": documents.name(file.filename), "source": {"bytes": data}}}


def _picture(media_type: str, data: str, at: str) -> Record:
    word = _sniffed(_head(data)) or _PICTURES.get(media_type)
    if word is None:
        raise refused(f"{at}: this model's provider takes no pictures of the type {media_type[:64] or 'unknown'}", at)
    return {"image": {"format": word, "source": {"bytes": data}}}


def _split(url: str, at: str) -> tuple[str, str]:
    """Return the media type and the base64 of a data URL. Raises InvalidRequest for any other URL."""
    if url[:5].lower() != "data:":
        raise refused(f"{at}: this model's provider takes the bytes of a picture or file, not its address", at)
    head = _DATA_URL.match(url)
    if head is None:
        raise _malformed(at)
    return head["type"].lower(), _clean(url[head.end() :], at)


def _clean(data: str, at: str) -> str:
    """Return base64 as Bedrock takes it: without blanks, in the usual alphabet."""
    if not _BASE64.fullmatch(data):
        data = _BLANKS.sub("", data).translate(_URL_SAFE)
        if not _BASE64.fullmatch(data):
            raise _malformed(at)
    return data + "=" * (-len(data) % 4)


def _malformed(at: str) -> InvalidRequest:
    return InvalidRequest(f"{at}: must hold base64, with data:<media type>;base64, before it", param=at)


def _head(data: str) -> bytes:
    """Return the first bytes of what base64 holds."""
    try:
        return b64decode(data[:32])
    except Error:
        return b""


def _sniffed(head: bytes) -> str | None:
    """Return what kind of image the bytes begin, None when of no kind that Bedrock takes."""
    media_type = image_type_of(head)
    return None if media_type is None else media_type.removeprefix("image/")
