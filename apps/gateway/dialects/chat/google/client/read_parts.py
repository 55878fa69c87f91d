"""Google generateContent, client side: reads parts: what was said, shown, called and answered, with signatures.

Knows the kinds of parts; one that it has no word for travels as it is. Must never know turns.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.dialects.adapting.signed_call_ids import state_signature
from apps.gateway.dialects.chat.google.client.read_media import read_blob, read_file
from apps.gateway.dialects.chat.google.client.signature_carrier import read_carrier
from apps.gateway.dialects.chat.google.shared.wire import (
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

MAX_PARTS = 10_000
# The fields that say what a part is: exactly one of them stands in it.
_KINDS = frozenset(
    {
        *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"),
        *("codeExecutionResult", "toolCall", "toolResponse"),
    }
)
_BESIDE = frozenset({"thought", "thoughtSignature", *_KINDS})
_CALL_FIELDS = frozenset({"id", "name", "args"})
_RESULT_FIELDS = frozenset({"id", "name", "response", "parts"})
# What a result's only field is called where it holds the whole of it.
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
    # What a carrier brought back may stand here once more, as it was shown.
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
    said: Any = response if name is None else response[name]
    parts: list[Part] = [Text(text=said if isinstance(said, str) else encode(said).decode())]
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
        json_field=None if isinstance(said, str) else name or "",
        extra={"functionResponse": extra} if extra else None,
    )
