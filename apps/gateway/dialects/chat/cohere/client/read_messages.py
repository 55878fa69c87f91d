"""Cohere Chat v2, client side: reads `messages` and `documents` into canonical messages, one for one, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.gateway.canonical.chat import Image, Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult
from apps.gateway.dialects.chat.cohere.wire import DOCUMENT, NAME, PLAN_FORMAT, encode
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
MAX_MESSAGES, MAX_PARTS, MAX_CALLS, MAX_DOCUMENTS = 10_000, 10_000, 1_000, 10_000

_CONTENT_FIELDS = frozenset({"role", "content"})
_ANSWER_FIELDS = _CONTENT_FIELDS | {"tool_plan", "tool_calls"}
_RESULT_FIELDS = _CONTENT_FIELDS | {"tool_call_id"}
_CALL_FIELDS = frozenset({"id", "type", "function"})


def read_messages(value: Any) -> list[Message]:
    """Read `messages`."""
    messages = _messages(value)
    if not messages:
        raise Malformed("must hold at least one message")
    return messages


def read_documents(value: Any) -> list[Opaque]:
    """Read `documents`: each a text, or an object with the members that the model reads."""
    return _documents(value)


def add_documents(messages: list[Message], documents: list[Opaque]) -> None:
    """Put the documents behind what the user said last. Raises Malformed where no user speaks."""
    asking = next((message for message in reversed(messages) if message.role == "user"), None)
    if asking is None:
        raise Malformed("need a message of the user's that asks about them", "documents")
    asking.parts = [*asking.parts, *documents]


def _document(value: Any) -> Opaque:
    document: Any = filled_string(value) if isinstance(value, str) else _stated(record(value))
    return Opaque(dialect=NAME, data={"type": DOCUMENT, DOCUMENT: document})


def _stated(document: Record) -> Record:
    required(document, "data", record)
    optional(document, "id", string)
    return document


def _message_of(role: Role, *kinds: str) -> Callable[[Record], Message]:
    """Return the reader of a message that is only content of these kinds."""
    read_parts = list_of(_part_of(*kinds), MAX_PARTS)

    def read(wire: Record) -> Message:
        parts = required(wire, "content", lambda content: _content(content, read_parts))
        return Message(role=role, parts=parts, extra=fields.rest_of(wire, _CONTENT_FIELDS))

    return read


def _assistant(wire: Record) -> Message:
    parts = optional(wire, "content", lambda content: _content(content, _answer_parts)) or []
    if plan := optional(wire, "tool_plan", string):
        parts.append(Reasoning(text=plan, format=PLAN_FORMAT))
    parts.extend(optional(wire, "tool_calls", _calls) or ())
    extra = fields.rest_of(wire, _ANSWER_FIELDS)
    if not parts and wire.get("content") is None:
        raise Malformed("Required", "content")
    return Message(role="assistant", parts=parts, extra=extra)


def _tool(wire: Record) -> Message:
    call_id = required(wire, "tool_call_id", filled_string)
    parts = required(wire, "content", lambda content: _content(content, _result_parts))
    return Message(
        role="tool",
        parts=[ToolResult(call_id=call_id, parts=parts)],
        extra=fields.rest_of(wire, _RESULT_FIELDS),
    )


def _content(value: Any, read_parts: Callable[[Any], list[Part]]) -> list[Part]:
    if isinstance(value, str):
        return [Text(text=value)]
    if isinstance(value, list):
        return read_parts(value)
    raise Malformed("must be a string or an array of parts")


def _text(wire: Record) -> Part:
    return Text(text=required(wire, "text", string), extra=fields.rest_of(wire, frozenset({"type", "text"})))


def _image(wire: Record) -> Part:
    return required(wire, "image_url", _image_url)


def _image_url(value: Any) -> Image:
    wire = record(value)
    extra = fields.rest_of(wire, frozenset({"url", "detail"}))
    return Image(
        url=required(wire, "url", filled_string),
        detail=optional(wire, "detail", string),
        extra=None if extra is None else {"image_url": extra},
    )


def _thinking(wire: Record) -> Part:
    return Reasoning(text=required(wire, "thinking", string))


def _attached(wire: Record) -> Part:
    return required(wire, DOCUMENT, _document)


_PARTS: dict[str, Callable[[Record], Part]] = {
    "text": _text,
    "image_url": _image,
    "thinking": _thinking,
    DOCUMENT: _attached,
}


def _part_of(*kinds: str) -> Callable[[Any], Part]:
    read = fields.pick({kind: _PARTS[kind] for kind in kinds}, "type")
    return lambda value: read(record(value))


def _call(value: Any) -> ToolCall:
    wire = record(value)
    extra = fields.rest_of(wire, _CALL_FIELDS)
    call_id = required(wire, "id", filled_string)
    name, arguments = required(wire, "function", _function)
    return ToolCall(id=call_id, name=name, arguments=arguments, extra=extra)


def _function(value: Any) -> tuple[str, str]:
    """Read name and arguments of a call; some clients send the object in place of its text."""
    wire = record(value)
    arguments = wire.get("arguments")
    if isinstance(arguments, dict):
        arguments = encode(arguments).decode()
    if arguments is not None and not isinstance(arguments, str):
        raise Malformed("must be a string", "arguments")
    return required(wire, "name", filled_string), arguments or ""


_answer_parts = list_of(_part_of("text", "thinking"), MAX_PARTS)
_result_parts = list_of(_part_of("text", DOCUMENT), MAX_PARTS)
_calls = list_of(_call, MAX_CALLS)
_documents = list_of(_document, MAX_DOCUMENTS)
_ROLES: dict[str, Callable[[Record], Message]] = {
    "user": _message_of("user", "text", "image_url"),
    "assistant": _assistant,
    "system": _message_of("system", "text"),
    "tool": _tool,
}
_read_by_role = fields.pick(_ROLES, "role")
_messages = list_of(lambda value: _read_by_role(record(value)), MAX_MESSAGES)
