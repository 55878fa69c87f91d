"""Google generateContent, client side: reads `contents` into canonical messages, a function's result as its own.

Calls need no ids here: results then belong to calls by name and order.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Audio, File, Image, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.canonical.tool_result_pairing import pair_calls
from apps.gateway.dialects.adapting.thinking import state_signature
from apps.gateway.dialects.chat.google.client import read_carrier
from apps.gateway.dialects.chat.google.wire import (
    IMAGE_SIGNATURE,
    NAME,
    SIGNATURE_FORMAT,
    TEXT_SIGNATURE,
    encode,
)
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    optional,
    record,
    required,
    string,
)

_URLSAFE = str.maketrans("-_", "+/")
# Names of audio formats that other formats have another name for.
_AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
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
        return Audio(data=data, format=_AUDIO_FORMATS.get(subtype, subtype))
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


MAX_PARTS = 10_000
# The fields that state a part's kind: each part has exactly one.
_KINDS = frozenset(
    {
        *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"),
        *("codeExecutionResult", "toolCall", "toolResponse"),
    }
)
_BESIDE = frozenset({"thought", "thoughtSignature", *_KINDS})
_CALL_FIELDS = frozenset({"id", "name", "args"})
_RESULT_FIELDS = frozenset({"id", "name", "response", "parts"})
# The name of a result's only field where it holds all of it.
_OUTPUTS = ("output", "result")


def read_parts(value: Any) -> list[Part]:
    """Read the parts of a content: a list, or, as Google takes it, a single one."""
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise Malformed("must be an array")
    if len(value) > MAX_PARTS:
        raise Malformed(f"must hold at most {MAX_PARTS} entries")
    reader = _Reader()
    for number, wire in enumerate(value):
        fields.within(f"[{number}]", reader.add, wire)
    if not reader.carried:
        return reader.parts
    # Thinking from a carrier may appear here a second time, as it was shown.
    return [part for part in reader.parts if not (isinstance(part, Reasoning) and part.format is None)]


def brings_carriers(messages: list[Message]) -> bool:
    """Return whether a conversation has thinking in it that another maker than Google signed."""
    return any(
        isinstance(part, Reasoning) and part.format not in (None, SIGNATURE_FORMAT)
        for message in messages
        for part in message.parts
    )


class _Reader:
    """The parts so far, and how many images are among them: their signatures name them by number."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.carried = False
        self._image_count = 0

    def add(self, value: Any) -> None:
        """Take in one part."""
        wire = record(value)
        signature = optional(wire, "thoughtSignature", string) or None
        if signature is not None and (blocks := read_carrier(signature)) is not None:
            self.parts.extend(blocks)
            self.carried = True
            signature = None
            wire = {name: inner for name, inner in wire.items() if name != "thoughtSignature"}
        if optional(wire, "thought", boolean) and "text" in wire:
            self._think(wire, signature)
            return
        kinds = [kind for kind in _KINDS if wire.get(kind) is not None]
        if len(kinds) > 1:
            raise Malformed(f"must hold one of {', '.join(sorted(kinds))}")
        kind = kinds[0] if kinds else ""
        if kind == "functionCall":
            call = required(wire, kind, _read_call)
            if signature is not None:
                call.extra = {**(call.extra or {}), **state_signature(signature)}
            self.parts.append(call)
            return
        part = self._read(kind, wire)
        if signature is not None and not isinstance(part, Opaque):
            is_media = kind in ("inlineData", "fileData")
            name = f"{IMAGE_SIGNATURE}{self._image_count}" if is_media else TEXT_SIGNATURE
            self.parts.append(Reasoning(signature=signature, id=name, format=SIGNATURE_FORMAT))
        if kind in ("inlineData", "fileData"):
            self._image_count += 1
        if part is not None:
            self.parts.append(part)

    def _think(self, wire: Record, signature: str | None) -> None:
        text = required(wire, "text", string)
        if text or signature:
            self.parts.append(
                Reasoning(text=text, signature=signature, format=SIGNATURE_FORMAT if signature is not None else None)
            )

    def _read(self, kind: str, wire: Record) -> Part | None:
        """Read a part that is neither a thought nor a call; None for one that says nothing but its signature."""
        extra = fields.rest_of(wire, _BESIDE)
        if kind == "text":
            return Text(text=required(wire, "text", string), extra=extra)
        if kind == "functionResponse":
            result = required(wire, kind, _read_result)
            result.extra = {**(result.extra or {}), **extra} if extra else result.extra
            return result
        if kind in ("inlineData", "fileData"):
            media = required(wire, kind, record)
            part = fields.within(kind, read_blob if kind == "inlineData" else read_file, media)
            if part is not None:
                part.extra = extra
                return part
        if not kind and extra is None:
            return None
        return Opaque(dialect=NAME, data=wire)


def _read_call(value: Any) -> ToolCall:
    wire = record(value)
    extra = fields.rest_of(wire, _CALL_FIELDS)
    return ToolCall(
        id=optional(wire, "id", string) or "",
        name=required(wire, "name", filled_string),
        arguments=encode(optional(wire, "args", record) or {}).decode(),
        extra={"functionCall": extra} if extra else None,
    )


def _read_result(value: Any) -> ToolResult:
    """Read what a function answered: the words themselves where its only field is the usual one, else JSON."""
    wire = record(value)
    response = optional(wire, "response", record) or {}
    is_error = response.keys() == {"error"}
    name = next((name for name in ("error", *_OUTPUTS) if response.keys() == {name}), None)
    if response.keys() == {"name", "content"} and response["name"] == wire.get("name"):
        # So Vercel's AI SDK writes results.
        name = "content"
    output: Any = response if name is None else response[name]
    parts: list[Part] = [Text(text=output if isinstance(output, str) else encode(output).decode())]
    parts += optional(wire, "parts", read_parts) or []
    for number, part in enumerate(parts):
        if isinstance(part, ToolCall | ToolResult | Reasoning):
            raise Malformed("must be text or media", f"parts[{number - 1}]")
    extra = fields.rest_of(wire, _RESULT_FIELDS)
    return ToolResult(
        call_id=optional(wire, "id", string) or "",
        name=required(wire, "name", filled_string),
        parts=parts,
        is_error=is_error,
        json_field=None if isinstance(output, str) else name or "",
        extra={"functionResponse": extra} if extra else None,
    )


# Far beyond any model's context.
MAX_CONTENTS = 10_000
_FIELDS = frozenset({"role", "parts"})
_USERS = ("", "user", "function", "tool")


def read_contents(value: Any) -> list[Message]:
    """Read `contents`: a list, or, as Google takes it, a single one."""
    contents = [value] if isinstance(value, dict) else value
    messages = [message for turn in _turns(contents) for message in turn]
    if not messages:
        raise Malformed("must hold at least one content")
    pair_calls(messages)
    return messages


def read_instruction(value: Any) -> list[Part]:
    """Read `systemInstruction`: a content, whose role says nothing, or its words alone."""
    if isinstance(value, str):
        return [Text(text=value)]
    parts = required(record(value), "parts", read_parts)
    for number, part in enumerate(parts):
        if not isinstance(part, Text):
            raise Malformed("must be text", f"parts[{number}]")
    return parts


def _turn(value: Any) -> list[Message]:
    wire = record(value)
    role = optional(wire, "role", string) or ""
    if role != "model" and role not in _USERS:
        raise Malformed("must be one of user, model, function", "role")
    parts = optional(wire, "parts", read_parts) or []
    extra = fields.rest_of(wire, _FIELDS)
    if role == "model":
        for number, part in enumerate(parts):
            if isinstance(part, ToolResult):
                raise Malformed("a function's response is the user's", f"parts[{number}].functionResponse")
        return [Message(role="assistant", parts=parts, extra=extra)]
    return _users_turn(parts, extra)


def _users_turn(parts: list[Part], extra: Record | None) -> list[Message]:
    """Return what functions answered, each a message, then what else is said."""
    for number, part in enumerate(parts):
        if isinstance(part, ToolCall):
            raise Malformed("a function's call is the model's", f"parts[{number}].functionCall")
    turns = [Message(role="tool", parts=[part]) for part in parts if isinstance(part, ToolResult)]
    others: list[Part] = [part for part in parts if not isinstance(part, ToolResult | Reasoning)]
    if others or not turns:
        turns.append(Message(role="user", parts=others))
    turns[-1].extra = extra
    return turns


_turns = fields.list_of(_turn, MAX_CONTENTS)
