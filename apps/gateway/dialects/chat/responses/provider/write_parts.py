"""OpenAI Responses, provider side: writes content parts of users, instructions and tool results.

Knows kinds of content and data URLs. Must never know items, and must never fetch anything.
"""

from __future__ import annotations

from mimetypes import guess_extension, guess_type

from apps.gateway.canonical.chat import Audio, File, Image, Opaque, Part, Piece, Refusal, Text
from apps.gateway.dialects.chat.responses.provider.flavor import Flavor
from apps.gateway.dialects.chat.responses.shared.wire import BREAKPOINT, EXPLICIT, NAME, Record, without_none
from apps.kernel.errors import InvalidRequest

_SOUNDS = frozenset({"wav", "mp3"})
_DATA = "data:"
_CORRECT = {"data:image/jpg;": "data:image/jpeg;"}


def write_content(parts: list[Part], flavor: Flavor, at: str, *, own: bool = False) -> str | list[Record]:
    """Return the content of a message; plain text alone is a string. `at` is where it lies in the client's request,
    `own` whether that is of this format, so that what its parts say beyond the canonical language is kept.

    Raises InvalidRequest for what the format has no words for.
    """
    wire = [{**_write_part(part, flavor, at), **_beside(part, own=own)} for part in parts]
    if not wire:
        return ""
    if len(wire) == 1 and wire[0].keys() == {"type", "text"}:
        return str(wire[0]["text"])
    return wire


def _beside(part: Part, *, own: bool) -> Record:
    """Return what a part says beyond the canonical language; of OpenAI's other format, its mark of what to cache."""
    extra = part.extra or {}
    if own:
        return extra if part.cache is None else {BREAKPOINT: dict(EXPLICIT), **extra}
    return {BREAKPOINT: extra[BREAKPOINT]} if isinstance(extra.get(BREAKPOINT), dict) else {}


def _write_part(part: Part, flavor: Flavor, at: str) -> Record:
    match part:
        case Text() | Refusal():
            wire: Record = {"type": "input_text", "text": part.text}
        case Image():
            wire = {"type": "input_image", "image_url": _corrected(part.url)}
            if not flavor.strict:
                wire["detail"] = part.detail or "auto"
        case Audio():
            wire = _write_audio(part, at)
        case File():
            wire = _write_file(part)
        case Opaque(dialect=dialect, data=data) if dialect == NAME:
            return dict(data)
        case _:
            raise InvalidRequest(
                f"{at}: it holds content that this model's provider has no form for",
                code="unsupported_feature",
                param=at,
            )
    return _with_cache_mark(wire, part, flavor)


def _with_cache_mark(wire: Record, piece: Piece, flavor: Flavor) -> Record:
    """Add a part's cache mark where the model takes those; prompts are cached without one, too."""
    if piece.cache is not None and BREAKPOINT in flavor.takes:
        wire[BREAKPOINT] = dict(EXPLICIT)
    return wire


def _write_audio(audio: Audio, at: str) -> Record:
    if audio.format not in _SOUNDS:
        raise InvalidRequest(
            f"{at}: this model's provider takes sound as wav or mp3", code="unsupported_feature", param=at
        )
    return {"type": "input_audio", "input_audio": {"data": audio.data, "format": audio.format}}


def _write_file(file: File) -> Record:
    """Return a document. One that is sent along needs a media type and a name: PDF where nobody says what it is."""
    if file.data is None:
        return {
            "type": "input_file",
            **without_none(file_url=file.url, file_id=file.file_id if file.url is None else None),
        }
    data, known = file.data, file.media_type or (guess_type(file.filename)[0] if file.filename else None)
    if not data.startswith(_DATA):
        data = f"data:{known or 'application/pdf'};base64,{data}"
    media_type = data[len(_DATA) :].partition(",")[0].partition(";")[0]
    name = file.filename or f"document{guess_extension(media_type) or '.pdf'}"
    return {"type": "input_file", "filename": name, "file_data": data}


def _corrected(url: str) -> str:
    """Return an image's address; a data URL under the name that its media type really has."""
    for wrong, right in _CORRECT.items():
        if url.startswith(wrong):
            return right + url[len(wrong) :]
    return url
