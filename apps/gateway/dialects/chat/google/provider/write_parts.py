"""Google generateContent, provider side: writes the parts of a turn; those of a model's turn each with its thought
signature.

Knows where signatures travel: a call's in its `extra` and in its id, any other in a block of thinking whose id names
the part. Must never know turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from apps.gateway.canonical.chat import Audio, File, Image, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from apps.gateway.dialects.adapting.signed_call_ids import split_signature, stated_signature
from apps.gateway.dialects.chat.google.provider.function_names import write_name
from apps.gateway.dialects.chat.google.provider.write_media import write_audio, write_file, write_image
from apps.gateway.dialects.chat.google.shared.wire import (
    IMAGE_SIGNATURE,
    NAME,
    SIGNATURE_FORMAT,
    TEXT_SIGNATURE,
    Record,
)
from apps.gateway.dialects.reading.call_arguments import says_nothing
from apps.gateway.dialects.reading.fields import BOUNDS
from apps.kernel.errors import InvalidRequest
from apps.kernel.json_bounds import decode_text_within

# What Google takes for the signature of a call that it did not make: base64 of the documented words
# `skip_thought_signature_validator`.
PLACEHOLDER_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="


def write_part(part: Part, *, ours: bool = False) -> Record:
    """Return a part; `ours`: with the fields of it that only this format knows. Raises InvalidRequest for what the
    format has no words for."""
    wire = _write(part)
    return {**wire, **part.extra} if ours and part.extra else wire


def _write(part: Part) -> Record:
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


def write_answer(parts: list[Part], *, signed: bool, ours: bool = False) -> list[Record]:
    """Return what a model said: its signed thinking, for clients of this format (`ours`) all of it, then everything
    else. `signed`: its first call needs one."""
    thinking = [part for part in parts if isinstance(part, Reasoning)]
    blocks = [part for part in thinking if part.signature and part.format == SIGNATURE_FORMAT]
    shown = [block for block in thinking if block.text and (block in blocks or (ours and block.format is None))]
    said = [
        write_part(part, ours=ours)
        for part in parts
        if not isinstance(part, Reasoning | ToolCall) and not (isinstance(part, Text) and not part.text)
    ]
    calls = [_call(part, ours=ours) for part in parts if isinstance(part, ToolCall)]
    if signed and calls:
        calls[0].setdefault("thoughtSignature", PLACEHOLDER_SIGNATURE)
    return [*map(_thought, shown), *_signed(said, [block for block in blocks if not block.text]), *calls]


def _thought(block: Reasoning) -> Record:
    wire = {"text": block.text, "thought": True}
    return {**wire, "thoughtSignature": block.signature} if block.format == SIGNATURE_FORMAT else wire


def _signed(said: list[Record], signatures: list[Reasoning]) -> Iterator[Record]:
    """Yield what was said, each signature on its part; a text's on the last one, else on an empty text."""
    texts = [wire for wire in said if "text" in wire][-1:]
    pictures = [wire for wire in said if "inlineData" in wire or "fileData" in wire]
    for signature in signatures:
        name = signature.id or ""
        if name == TEXT_SIGNATURE:
            found = texts.pop() if texts else None
        else:
            place = name.removeprefix(IMAGE_SIGNATURE)
            found = pictures[int(place)] if place.isdecimal() and int(place) < len(pictures) else None
        if found is None:
            yield {"text": "", "thoughtSignature": signature.signature}
        else:
            found["thoughtSignature"] = signature.signature
    yield from said


def _call(call: ToolCall, *, ours: bool) -> Record:
    call_id, carried = split_signature(call.id)
    wire: Record = {"functionCall": {"id": call_id, "name": write_name(call.name), "args": _arguments(call.arguments)}}
    if ours and call.extra and isinstance(own := call.extra.get("functionCall"), dict):
        wire["functionCall"] = {**own, **wire["functionCall"]}
    signature = stated_signature(call.extra) or carried
    return wire if signature is None else {**wire, "thoughtSignature": signature}


def _arguments(text: str) -> msgspec.Raw | Record:
    """Return the arguments with all of their digits; what is no object is wrapped in one, which Google insists on."""
    try:
        is_object = isinstance(decode_text_within(text, BOUNDS), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        return {} if says_nothing(text) else {"input": text}
    return msgspec.Raw(text.encode())
