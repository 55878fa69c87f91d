"""Answers in the log: the texts of several choices, and the images and audio of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content
from apps.logs.query import LogRow

# Images and audio of one answer, and the bytes of all of them together.
MAX_MEDIA: Final = 16
MAX_MEDIA_BYTES: Final = 4 * 1024 * 1024
UNKNOWN_TYPE: Final = "application/octet-stream"
# Types that a browser may show; others are downloads.
SHOWN_TYPES: Final = frozenset(
    {
        *("image/png", "image/jpeg", "image/webp", "image/gif"),
        *("audio/mpeg", "audio/wav", "audio/ogg", "audio/flac"),
    }
)
_AUDIO_TYPES: Final = {
    **{form: f"audio/{form}" for form in ("aac", "flac", "wav", "pcm")},
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "pcm16": "audio/pcm",
}


class AnswerMedium(NamedTuple):
    """One stored image or audio."""

    content_type: str
    data: bytes


def choices_of(row: LogRow) -> list[dict[str, Any]]:
    """Return the choices of a row with their texts, which the row holds one after another; none of a single answer."""
    stored = row["choices"]
    outlines = msgspec.json.decode(stored) if isinstance(stored, str) else stored
    choices, places = [], {"content": 0, "refusal": 0}
    for outline in outlines or ():
        choice = {"index": outline["index"], "finishReason": outline["finishReason"]}
        for name, place in places.items():
            length = outline.get(f"{name}Length")
            choice[name] = None if length is None else (row[name] or "")[place : place + length]
            # A line break follows each text.
            places[name] += 0 if length is None else length + 1
        choices.append(choice)
    return choices


def audio_type_of(form: object) -> str:
    """Return the media type of audio in a format that a client asked for by its name."""
    return _AUDIO_TYPES.get(str(form), UNKNOWN_TYPE)


def read_medium(log_id: UUID, described: Any, encrypted: str | None, number: int) -> AnswerMedium | None:
    """Return the image or audio that a row describes in this place; None where its bytes are not stored."""
    listed: Sequence[Any] = described if isinstance(described, list) else []
    if encrypted is None or not 0 <= number < len(listed) or not listed[number].get("stored"):
        return None
    try:
        data = decrypt_content(encrypted, str(log_id))
    except UnreadableSecretError:
        return None
    begin = sum(one["size"] for one in listed[:number] if one.get("stored"))
    one = listed[number]
    return AnswerMedium(str(one.get("contentType") or UNKNOWN_TYPE), data[begin : begin + one["size"]])
