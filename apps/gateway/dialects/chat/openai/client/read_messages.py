"""OpenAI Chat Completions, client side: reads `messages` into canonical messages, one for one, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from apps.gateway.canonical.chat import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.chat.openai.wire import NAME, encode
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    filled_string,
    list_of,
    optional,
    record,
    required,
    string,
)

# Bounds far beyond any model's context.
MAX_MESSAGES, MAX_PARTS, MAX_CALLS = 10_000, 10_000, 1_000

_PLAIN_TEXT = frozenset({"type", "text"})
# Kinds of parts that only some providers of this format have: they travel as they are.
_OWN_PARTS = frozenset({"video_url", "input_video", "document_url", "thinking", "reference"})
_PART_FIELDS = frozenset({"type", "text", "cache_control"})
_MESSAGE_FIELDS = frozenset({"role", "content", "name"})
_TOOL_FIELDS = _MESSAGE_FIELDS | {"tool_call_id"}
_ASSISTANT_FIELDS = _MESSAGE_FIELDS | {
    "refusal",
    "tool_calls",
    "function_call",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "images",
}
_CALL_FIELDS = frozenset({"id", "function", "index"})
_DETAIL_FIELDS = frozenset({"type", "text", "summary", "data", "signature", "id", "format", "index"})


def read_messages(value: Any) -> list[Message]:
    """Read `messages`."""
    messages = _messages(value)
    if not messages:
        raise Malformed("must hold at least one message")
    return messages


def pair_unnamed_calls(messages: list[Message]) -> bool:
    """Give calls of the time before calls had ids one, and each result the id of the latest call of its name.

    The same messages get the same ids. Returns whether there were any.
    """
    latest: dict[str | None, str] = {}
    found = False
    for number, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.id:
                part.id = latest[part.name] = f"call_{number}_{part.name}"
                found = True
            elif isinstance(part, ToolResult) and not part.call_id:
                part.call_id = latest.get(part.name, f"call_{part.name}")
                found = True
    return found


def _instruction(role: Role) -> Callable[[Record], Message]:
    """Return the reader of a message that is nothing but content."""

    def read(wire: Record) -> Message:
        name = optional(wire, "name", string)
        extra = fields.rest_of(wire, _MESSAGE_FIELDS)
        return Message(role=role, parts=required(wire, "content", _content), name=name, extra=extra)

    return read


def _tool(wire: Record) -> Message:
    call_id = required(wire, "tool_call_id", filled_string)
    name = optional(wire, "name", string)
    result = ToolResult(call_id=call_id, parts=required(wire, "content", _content), name=name)
    return Message(role="tool", parts=[result], extra=fields.rest_of(wire, _TOOL_FIELDS))


def _function(wire: Record) -> Message:
    """Read the result of a call of the time before calls had ids."""
    name = required(wire, "name", string)
    result = ToolResult(call_id="", parts=optional(wire, "content", _content) or [], name=name)
    return Message(role="tool", parts=[result], extra=fields.rest_of(wire, _MESSAGE_FIELDS))


def _assistant(wire: Record) -> Message:
    content = optional(wire, "content", _content)
    if content is not None and len(wire) == 2:
        return Message(role="assistant", parts=content)
    parts: list[Part] = [*_reasoning(wire), *(content or ())]
    if refusal := optional(wire, "refusal", string):
        parts.append(Refusal(text=refusal))
    audio = wire.get("audio")
    if content is None and isinstance(audio, dict) and isinstance(words := audio.get("transcript"), str) and words:
        # The transcript, for models that cannot look the audio up by its id.
        parts.append(Text(text=words))
    parts.extend(optional(wire, "images", _parts) or ())
    parts.extend(optional(wire, "tool_calls", _calls) or ())
    if call := optional(wire, "function_call", _function_call):
        parts.append(call)
    extra = fields.rest_of(wire, _ASSISTANT_FIELDS)
    if content is None and not parts and not extra:
        raise Malformed("Required", "content")
    return Message(role="assistant", parts=parts, name=optional(wire, "name", string), extra=extra)


def _reasoning(wire: Record) -> list[Reasoning]:
    """Read what the model thought: block by block where the client kept the blocks, else as one text."""
    details = optional(wire, "reasoning_details", _details) or []
    if any(block.text for block in details):
        return details
    text = optional(wire, "reasoning", string)
    if not text:
        text = optional(wire, "reasoning_content", string) or text
    return details if text is None else [Reasoning(text=text), *details]


def _detail(value: Any) -> Reasoning:
    wire = record(value)
    summary = optional(wire, "summary", string)
    return Reasoning(
        text=(optional(wire, "text", string) or "") if summary is None else summary,
        summary=summary is not None,
        signature=optional(wire, "signature", string),
        data=optional(wire, "data", string),
        id=optional(wire, "id", string),
        format=optional(wire, "format", string),
        extra=fields.rest_of(wire, _DETAIL_FIELDS),
    )


def _call(value: Any) -> ToolCall:
    wire = record(value)
    call_id = required(wire, "id", filled_string)
    if wire.get("type") == "custom":
        custom = required(wire, "custom", record)
        name, arguments = required(custom, "name", string), optional(custom, "input", string) or ""
        return ToolCall(id=call_id, name=name, arguments=arguments, extra={"type": "custom"})
    function = required(wire, "function", record)
    extra = fields.rest_of(wire, _CALL_FIELDS)
    if extra and extra.pop("type", "function") != "function":
        raise Malformed("must be one of function, custom", "type")
    return ToolCall(
        id=call_id,
        name=fields.within("function", lambda it: required(it, "name", string), function),
        arguments=fields.within("function", _arguments, function),
        extra=extra or None,
    )


def _function_call(value: Any) -> ToolCall:
    wire = record(value)
    return ToolCall(id="", name=required(wire, "name", string), arguments=_arguments(wire))


def _arguments(function: Record) -> str:
    """Return the text the model wrote. Clients that send the object instead get it as JSON text."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, dict):
        return encode(arguments).decode()
    if arguments is None:
        return ""
    raise Malformed("must be a string", "arguments")


def _content(value: Any) -> list[Part]:
    if isinstance(value, str):
        return [Text(text=value)]
    if isinstance(value, list):
        return _parts(value)
    raise Malformed("must be a string or an array of parts")


def _part(value: Any) -> Part:
    wire = record(value)
    kind = required(wire, "type", filled_string)
    read = _PARTS.get(kind)
    if read is not None:
        return read(wire)
    if kind not in _OWN_PARTS:
        raise Malformed(f"must be one of {', '.join(_PARTS)}", "type")
    return Opaque(dialect=NAME, data=wire)


def _text(wire: Record) -> Text:
    text = required(wire, "text", string)
    if wire.keys() == _PLAIN_TEXT:
        return Text(text=text)
    return Text(text=text, cache=cache_mark(wire), extra=fields.rest_of(wire, _PART_FIELDS))


def _image(wire: Record) -> Image:
    value = wire.get("image_url")
    inner = {"url": value} if isinstance(value, str) else required(wire, "image_url", record)
    url = fields.within("image_url", lambda it: required(it, "url", filled_string), inner)
    detail = fields.within("image_url", lambda it: optional(it, "detail", string), inner)
    extra = _part_extra(wire, "image_url", inner, frozenset({"url", "detail"}))
    return Image(url=url, detail=detail, cache=cache_mark(wire), extra=extra)


def _audio(wire: Record) -> Audio:
    inner = required(wire, "input_audio", record)
    data = fields.within("input_audio", lambda it: required(it, "data", filled_string), inner)
    audio_format = fields.within("input_audio", lambda it: required(it, "format", string), inner)
    extra = _part_extra(wire, "input_audio", inner, frozenset({"data", "format"}))
    return Audio(data=data, format=audio_format, cache=cache_mark(wire), extra=extra)


def _file(wire: Record) -> File:
    inner = required(wire, "file", record)
    data, file_id, filename = fields.within(
        "file", lambda it: [optional(it, name, string) for name in ("file_data", "file_id", "filename")], inner
    )
    if data is None and file_id is None:
        raise Malformed("Required", "file.file_data")
    by_address = data is not None and data.startswith(("https://", "http://"))
    return File(
        data=None if by_address else data,
        url=data if by_address else None,
        file_id=file_id,
        filename=filename,
        cache=cache_mark(wire),
        extra=_part_extra(wire, "file", inner, frozenset({"file_data", "file_id", "filename"})),
    )


def _refusal(wire: Record) -> Refusal:
    extra = fields.rest_of(wire, frozenset({"type", "refusal"}))
    return Refusal(text=required(wire, "refusal", string), extra=extra)


def _part_extra(wire: Record, kind: str, inner: Record, known: frozenset[str]) -> Record | None:
    """Return the unknown fields of a part and, under its kind, those of the object in it."""
    extra = fields.rest_of(wire, _PART_FIELDS | {kind})
    inner_extra = fields.rest_of(inner, known)
    return extra if inner_extra is None else {**(extra or {}), kind: inner_extra}


def cache_mark(wire: Record) -> CacheMark | None:
    """Read a part's or a tool's `cache_control`."""
    mark = optional(wire, "cache_control", record)
    return None if mark is None else CacheMark(ttl=fields.within("cache_control", _ttl, mark))


def _ttl(mark: Record) -> str | None:
    return optional(mark, "ttl", string)


_PARTS: dict[str, Callable[[Record], Part]] = {
    "text": _text,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
    "refusal": _refusal,
}
# Roles whose messages may be a text and nothing else.
_SPEAKERS = frozenset({"system", "developer", "user", "assistant"})
_ROLES: dict[str, Callable[[Record], Message]] = {
    "system": _instruction("system"),
    "developer": _instruction("developer"),
    "user": _instruction("user"),
    "assistant": _assistant,
    "tool": _tool,
    "function": _function,
}
_read_by_role = fields.pick(_ROLES, "role")


def _message(value: Any) -> Message:
    if isinstance(value, dict) and len(value) == 2:
        # Nearly every message is a role and a text.
        role, text = value.get("role"), value.get("content")
        if type(text) is str and type(role) is str and role in _SPEAKERS:
            return Message(role=cast(Role, role), parts=[Text(text=text)])
    return _read_by_role(record(value))


_messages = list_of(_message, MAX_MESSAGES)
_parts = list_of(_part, MAX_PARTS)
_calls = list_of(_call, MAX_CALLS)
_details = list_of(_detail, MAX_PARTS)
