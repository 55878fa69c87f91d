"""Recordings of clients: what kind of audio a file holds, and how long it is, told from its bytes.

A file's own head is believed within what its size allows: no codec for speech needs less than `MIN_BYTES` a second,
and none takes more than `MAX_BYTES`.
"""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from typing import Final

import filetype
from tinytag import TinyTag

from apps.gateway.canonical.audio import Recording
from apps.gateway.dialects.reading.fields import Malformed
from apps.kernel.errors import BodyTooLarge

MAX_SIZE: Final = 25 * 1024 * 1024
# Bytes a second: of Opus at its narrowest, of eight channels of 32 bits at 96 kHz, and of a usual recording.
MIN_BYTES, MAX_BYTES, _USUAL_BYTES = 750, 3_072_000, 4_000
# Reads in which a head tells the length: files of 25 MB take some ten thousand. One that is made to take more would
# keep a processor busy.
_MAX_READS: Final = 50_000
_HEAD: Final = 8_192
_MEDIA_TYPES: Final = {
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "mpeg": "audio/mpeg",
    "mpga": "audio/mpeg",
    "mp4": "audio/mp4",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "wav": "audio/wav",
    "webm": "audio/webm",
    "aac": "audio/aac",
}
_EXTENSIONS: Final = {
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/ogg": "ogg",
    "audio/x-flac": "flac",
    "audio/x-wav": "wav",
    "audio/aac": "aac",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-matroska": "webm",
}


class _BoundedFile(BytesIO):
    """A file of which so many pieces are read and no more."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes. Raises ValueError once too many pieces were read."""
        self.reads += 1
        if self.reads > _MAX_READS:
            raise ValueError("too many pieces")
        return super().read(size)


def read_recording(filename: str, data: bytes) -> Recording:
    """Return a client's file. Raises Malformed for one that is no audio file, BodyTooLarge."""
    if not data:
        raise Malformed("must not be empty", "file")
    if len(data) > MAX_SIZE:
        raise BodyTooLarge(f"file: must not be larger than {MAX_SIZE} bytes", param="file")
    extension = _extension_of(filename, data)
    usual, most = _length_of(data)
    return Recording(
        extension=extension,
        media_type=_MEDIA_TYPES[extension],
        data=data,
        digest=sha256(data).hexdigest(),
        milliseconds=usual,
        max_milliseconds=most,
    )


def _extension_of(filename: str, data: bytes) -> str:
    """Return the format that the bytes tell, else the one that the name tells."""
    sniffed = filetype.guess_mime(data[:_HEAD])
    named = filename.rpartition(".")[2].lower()
    extension = _EXTENSIONS.get(sniffed or "", named if sniffed is None else "")
    if extension not in _MEDIA_TYPES:
        raise Malformed(f"must be audio, in one of the formats {', '.join(_MEDIA_TYPES)}", "file")
    # `mpga` is what some call MP3: who named a kind of the same format is taken at their word.
    return named if _MEDIA_TYPES.get(named) == _MEDIA_TYPES[extension] else extension


def _length_of(data: bytes) -> tuple[int, int]:
    """Return about how long a file is, and at most, in milliseconds."""
    shortest, longest = len(data) * 1000 // MAX_BYTES, -(-len(data) * 1000 // MIN_BYTES)
    seconds = _stated_length(data)
    if seconds is None:
        return -(-len(data) * 1000 // _USUAL_BYTES), longest
    length = max(min(round(seconds * 1000), longest), shortest, 1)
    return length, length


def _stated_length(data: bytes) -> float | None:
    """Return the seconds that a file's head tells, None where it tells none, or is made to deceive."""
    try:
        seconds = TinyTag.get(file_obj=_BoundedFile(data), tags=False).duration
    except Exception:  # noqa: BLE001 - whatever is in it, a client sent it
        return None
    return seconds if seconds is not None and 0 < seconds < float("inf") else None
