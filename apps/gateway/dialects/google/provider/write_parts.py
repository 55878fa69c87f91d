"""Parts of canonical messages to Google's parts; in a model's answer, each with the seal that it came with.

Knows where seals travel: a call's in its `extra` and in its id, any other in a block of thinking whose id names the
part. Must never know turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from apps.gateway.canonical.chat import Audio, File, Image, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from apps.gateway.dialects.fields import BOUNDS
from apps.gateway.dialects.google.provider.function_names import write_name
from apps.gateway.dialects.google.provider.write_media import write_audio, write_file, write_image
from apps.gateway.dialects.google.shared.wire import IMAGE_SEAL, NAME, SEAL_FORMAT, TEXT_SEAL, Record
from apps.gateway.dialects.signed_call_ids import split_seal
from apps.kernel.errors import InvalidRequest
from apps.kernel.json_bounds import decode_text_within

# What Google takes for the seal of a call that it did not make: base64 of the documented words
# `skip_thought_signature_validator`.
NO_SEAL = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="


def write_part(part: Part) -> Record:
    """Return a part. Raises InvalidRequest for what the format has no words for."""
    match part:
        case Text() | Refusal():
            return {"text": part.text}
        case Image():
            return write_image(part)
        case Audio():
            return write_audio(part)
        case File():
            return write_file(part)
        case Opaque(dialect=dialect, data=data) if dialect == NAME:
            return dict(data)
        case _:
            raise InvalidRequest(
                "A message holds content that this model's provider has no form for",
                code="unsupported_feature",
                param="messages",
            )


def write_answer(parts: list[Part], *, sealed: bool) -> list[Record]:
    """Return what a model said: its sealed thinking, then everything else. `sealed`: its first call needs a seal."""
    blocks = [part for part in parts if isinstance(part, Reasoning) and part.signature and part.format == SEAL_FORMAT]
    thoughts = [
        {"text": block.text, "thought": True, "thoughtSignature": block.signature} for block in blocks if block.text
    ]
    said = [
        write_part(part)
        for part in parts
        if not isinstance(part, Reasoning | ToolCall) and not (isinstance(part, Text) and not part.text)
    ]
    calls = [_call(part) for part in parts if isinstance(part, ToolCall)]
    if sealed and calls:
        calls[0].setdefault("thoughtSignature", NO_SEAL)
    return [*thoughts, *_sealed(said, [block for block in blocks if not block.text]), *calls]


def _sealed(said: list[Record], seals: list[Reasoning]) -> Iterator[Record]:
    """Yield what was said, each seal on its part: a text's on the last text, one without its part on an empty text."""
    texts = [wire for wire in said if "text" in wire][-1:]
    pictures = [wire for wire in said if "inlineData" in wire or "fileData" in wire]
    for seal in seals:
        name = seal.id or ""
        if name == TEXT_SEAL:
            found = texts.pop() if texts else None
        else:
            place = name.removeprefix(IMAGE_SEAL)
            found = pictures[int(place)] if place.isdecimal() and int(place) < len(pictures) else None
        if found is None:
            yield {"text": "", "thoughtSignature": seal.signature}
        else:
            found["thoughtSignature"] = seal.signature
    yield from said


def _call(call: ToolCall) -> Record:
    call_id, carried = split_seal(call.id)
    wire: Record = {"functionCall": {"id": call_id, "name": write_name(call.name), "args": _arguments(call.arguments)}}
    seal = _stated_seal(call.extra) or carried
    return wire if seal is None else {**wire, "thoughtSignature": seal}


def _stated_seal(extra: Record | None) -> str | None:
    """Return the seal in a call's `extra_content.google.thought_signature`, where Google's own OpenAI format has it."""
    found: Any = extra
    for name in ("extra_content", "google", "thought_signature"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


def _arguments(text: str) -> msgspec.Raw | Record:
    """Return the arguments with all of their digits; what is no object is wrapped in one, which Google insists on."""
    try:
        is_object = isinstance(decode_text_within(text, BOUNDS), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        return {"input": text} if text.strip() else {}
    return msgspec.Raw(text.encode())
