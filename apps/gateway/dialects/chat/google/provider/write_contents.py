"""Google generateContent, provider side: writes `systemInstruction` and `contents`, or passes on what a client wrote in
this very format.

Consecutive messages of one role are one turn; tool results come first in their turn, in the order of the calls.
Instructions in mid-conversation stay where they are, as marked text of the user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from mimetypes import MimeTypes
from typing import Any
from urllib.parse import urlsplit

import msgspec

from apps.gateway.canonical.chat import (
    Audio,
    Chat,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.thinking import split_signature, stated_signature
from apps.gateway.dialects.chat.google.wire import (
    IMAGE_SIGNATURE,
    NAME,
    SIGNATURE_FORMAT,
    TEXT_SIGNATURE,
    Capabilities,
    without_none,
)
from apps.gateway.dialects.reading.fields import BOUNDS, Record, is_empty_arguments
from apps.kernel.errors import InvalidRequest
from apps.kernel.json_bounds import decode_text_within

_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def passes(chat: Chat, capabilities: Capabilities) -> bool:
    """Return whether a request can be sent in the client's own words."""
    if chat.source is None or chat.source.dialect != NAME:
        return False
    asked = chat.reasoning
    if asked is not None and asked.effort not in (None, "none") and capabilities.thinking == "budget":
        # A level, which the model does not know.
        return False
    return not capabilities.requires_signatures or all(map(_is_signed, chat.messages))


def _is_signed(message: Any) -> bool:
    """Return whether the first call of a turn has its signature, where there is one."""
    first = next((part for part in message.parts if isinstance(part, ToolCall)), None)
    return first is None or stated_signature(first.extra) is not None


def pass_on(chat: Chat, body: bytes) -> Record:
    """Return the fields of the client's body, with the limit on the answer as it is now."""
    wire: Record = {name: raw for name, raw in _read_fields(body).items() if raw != _NULL and name != "model"}
    config: Record = _read_fields(wire["generationConfig"]) if "generationConfig" in wire else {}
    if chat.max_tokens is not None:
        wire["generationConfig"] = {**config, "maxOutputTokens": chat.max_tokens}
    if not chat.tools and (chat.tool_choice is None or chat.tool_choice.mode in ("auto", "none")):
        # How functions are called is refused where there are none.
        for name in ("toolConfig", "tool_config"):
            wire.pop(name, None)
    return wire


def merged(wire: Record, own: Record) -> Record:
    """Return fields and, beside them, what only clients of this format say; where both say something, the former."""
    whole = {**own, **wire}
    for name in wire.keys() & own.keys():
        if isinstance(wire[name], dict) and isinstance(own[name], dict):
            whole[name] = merged(wire[name], own[name])
    return whole


_ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_ESCAPED = "_x."
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPES = re.compile(rb"\.([0-9a-f]{2})")
MAX_NAME_LENGTH = 128
# Short enough to be sent, as it is or escaped: an escaped byte takes three characters.
ALLOWED_NAMES = re.compile(r"(?!_x\.)[A-Za-z_][A-Za-z0-9_.:-]{0,127}|[\x00-\x7f]{1,41}|.{1,10}", re.DOTALL)


def write_name(name: str) -> str:
    """Return the name to send to Google. Raises InvalidRequest for one that is too long."""
    if _ALLOWED.fullmatch(name) and not name.startswith(_ESCAPED):
        return name
    escaped = _ESCAPED + _UNSAFE.sub(lambda byte: b".%02x" % byte[0][0], name.encode()).decode()
    if len(escaped) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"The function name {name[:64]} is too long for this model's provider",
            code="unsupported_feature",
            param="tools",
        )
    return escaped


def read_name(name: str) -> str:
    """Return the client's name of a function that Google names."""
    if not name.startswith(_ESCAPED):
        return name
    escaped = name.removeprefix(_ESCAPED).encode()
    return _ESCAPES.sub(lambda escape: bytes.fromhex(escape[1].decode()), escaped).decode("utf-8", "replace")


_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]+)*;base64,", re.IGNORECASE)
_TYPES = MimeTypes()
for _type in ("image/webp", "image/heic", "image/heif", "audio/flac", "audio/aac", "audio/ogg", "text/markdown"):
    _TYPES.add_type(_type, f".{_type.partition('/')[2]}")
_TYPES.add_type("text/markdown", ".md")
_BLANKS = re.compile(r"\s+")
_CORRECT = {"image/jpg": "image/jpeg", "audio/mpeg": "audio/mp3", "audio/x-wav": "audio/wav"}
_AUDIO_FORMATS = {"pcm16": "audio/pcm"}


def write_image(image: Image) -> Record:
    """Return an image. Raises InvalidRequest for a data URL that cannot be read."""
    return _located(image.url, "image/png", None)


def write_audio(audio: Audio) -> Record:
    """Return audio."""
    return _inline(_AUDIO_FORMATS.get(audio.format) or f"audio/{audio.format}", audio.data)


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


# The signature that Google accepts on a call that it did not make: base64 of the documented words
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
    content = [
        write_part(part, ours=ours)
        for part in parts
        if not isinstance(part, Reasoning | ToolCall) and not (isinstance(part, Text) and not part.text)
    ]
    calls = [_call(part, ours=ours) for part in parts if isinstance(part, ToolCall)]
    if signed and calls:
        calls[0].setdefault("thoughtSignature", PLACEHOLDER_SIGNATURE)
    return [*map(_thought, shown), *_signed(content, [block for block in blocks if not block.text]), *calls]


def _thought(block: Reasoning) -> Record:
    wire = {"text": block.text, "thought": True}
    return {**wire, "thoughtSignature": block.signature} if block.format == SIGNATURE_FORMAT else wire


def _signed(content: list[Record], signatures: list[Reasoning]) -> Iterator[Record]:
    """Yield the parts of a message, each signature on its part; a text's on the last part, else on an empty text."""
    texts = [wire for wire in content if "text" in wire][-1:]
    images = [wire for wire in content if "inlineData" in wire or "fileData" in wire]
    for signature in signatures:
        name = signature.id or ""
        if name == TEXT_SIGNATURE:
            found = texts.pop() if texts else None
        else:
            place = name.removeprefix(IMAGE_SIGNATURE)
            found = images[int(place)] if place.isdecimal() and int(place) < len(images) else None
        if found is None:
            yield {"text": "", "thoughtSignature": signature.signature}
        else:
            found["thoughtSignature"] = signature.signature
    yield from content


def _call(call: ToolCall, *, ours: bool) -> Record:
    call_id, carried = split_signature(call.id)
    wire: Record = {"functionCall": {"id": call_id, "name": write_name(call.name), "args": _arguments(call.arguments)}}
    if ours and call.extra and isinstance(own := call.extra.get("functionCall"), dict):
        wire["functionCall"] = {**own, **wire["functionCall"]}
    signature = stated_signature(call.extra) or carried
    return wire if signature is None else {**wire, "thoughtSignature": signature}


def _arguments(text: str) -> msgspec.Raw | Record:
    """Return the arguments with all of their digits; other values are wrapped in an object, which Google requires."""
    try:
        is_object = isinstance(decode_text_within(text, BOUNDS), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        return {} if is_empty_arguments(text) else {"input": text}
    return msgspec.Raw(text.encode())


def write_contents(messages: list[Message], *, signed: bool, ours: bool = False) -> tuple[list[Record], list[Record]]:
    """Return the instructions that the conversation begins with, as parts, and its turns.

    `signed` tells whether calls need a signature, `ours` whether the client speaks this format. A conversation of
    nothing but instructions is said by the user. Raises InvalidRequest for what cannot be said.
    """
    begins = next((at for at, it in enumerate(messages) if it.role not in ("system", "developer")), len(messages))
    instructions = [part for message in messages[:begins] for part in _instruction(message)]
    turns = _Turns(signed=signed, ours=ours)
    for message in messages[begins:]:
        turns.add(message)
    contents = turns.written()
    if not contents:
        return [], [{"role": "user", "parts": instructions or [{"text": "."}]}]
    return instructions, contents


def _instruction(message: Message) -> list[Record]:
    if not all(isinstance(part, Text) for part in message.parts):
        raise InvalidRequest(
            "Instructions can only be text for this model's provider", code="unsupported_feature", param="messages"
        )
    return [{"text": part.text} for part in message.parts if isinstance(part, Text) and part.text]


class _Turns:
    """The turns so far, and which calls were made."""

    def __init__(self, *, signed: bool, ours: bool) -> None:
        self._signed = signed
        self._ours = ours
        self._turns: list[_Turn] = []
        # By id, which clients may reuse in each turn: the place among all calls, and the name.
        self._calls: dict[str, tuple[int, str]] = {}
        self._places = count()

    def add(self, message: Message) -> None:
        """Take in one message."""
        turn = self._turn("model" if message.role == "assistant" else "user")
        if message.role == "assistant":
            turn.parts.extend(write_answer(message.parts, signed=self._signed, ours=self._ours))
            for part in message.parts:
                if isinstance(part, ToolCall):
                    self._calls[split_signature(part.id)[0]] = next(self._places), part.name
        elif message.role in ("system", "developer"):
            if text := "\n".join(part["text"] for part in _instruction(message)):
                turn.parts.append({"text": f"<system>\n{text}\n</system>"})
        else:
            for part in message.parts:
                self._add_part(part, turn)

    def written(self) -> list[Record]:
        """Return all turns that say anything."""
        return [wire for turn in self._turns if (wire := turn.written())["parts"]]

    def _turn(self, role: str) -> _Turn:
        """Return the turn that a role speaks in now; one in which nothing was said does not come between."""
        if self._turns and self._turns[-1].role != role and self._turns[-1].silent:
            self._turns.pop()
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def _add_part(self, part: Part, turn: _Turn) -> None:
        if isinstance(part, ToolResult):
            media = [write_part(it, ours=self._ours) for it in part.parts if not isinstance(it, Text | Refusal)]
            # Other content goes beside the result, unless the client put it inside: not every model looks there.
            turn.results.append(self._result(part, media if self._ours else []))
            turn.parts.extend([] if self._ours else media)
        elif not isinstance(part, Text) or part.text:
            turn.parts.append(write_part(part, ours=self._ours))

    def _result(self, result: ToolResult, media: list[Record]) -> tuple[int, Record]:
        """Return a result and its call's place. Raises InvalidRequest where the function's name is unknown."""
        call_id = split_signature(result.call_id)[0]
        place, name = self._calls.get(call_id, (next(self._places), result.name))
        if name is None:
            raise InvalidRequest(f"messages: no call has the id {call_id[:64]} that a tool answers", param="messages")
        answer: Record = {"id": call_id, "name": write_name(name), "response": _response(result, ours=self._ours)}
        wire = {"functionResponse": {**answer, "parts": media} if media else answer}
        return place, merged(wire, result.extra) if self._ours and result.extra else wire


def _response(result: ToolResult, *, ours: bool) -> Any:
    """Return what a function answered: the object that a client of this format sent, in every other case the text,
    because inside of an object Google follows a `$ref`."""
    texts = [part.text for part in result.parts if isinstance(part, Text | Refusal)]
    text = "\n".join(texts)
    field = result.json_field
    if not ours or field is None or not _is_json(text, dict if field == "" else object):
        return {"error" if result.is_error else "output": text}
    # The bytes keep every digit of its numbers.
    raw = msgspec.Raw(text.encode())
    return {field: raw} if field else raw


def _is_json(text: str, kind: type) -> bool:
    """Return whether a text is a JSON value of a kind: what a guardrail has changed may be none any more."""
    try:
        return isinstance(decode_text_within(text, BOUNDS), kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


class _Turn:
    """One turn: what tools answered, and everything else that is said in it."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.results: list[tuple[int, Record]] = []
        self.parts: list[Record] = []

    @property
    def silent(self) -> bool:
        """Whether nothing was said in it."""
        return not self.results and not self.parts

    def written(self) -> Record:
        """Return the turn, results first and in the order of the calls."""
        results = [wire for _, wire in sorted(self.results, key=lambda result: result[0])]
        return {"role": self.role, "parts": [*results, *self.parts]}
