"""Cohere Chat v2, client side: reads a request body into a canonical chat, and writes the request for the log.

Refusals name the field. `messages` become canonical messages one for one, in order; `documents` are added to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    Role,
    Source,
    Target,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from apps.gateway.dialects.chat.cohere.provider.write_request import (
    write_documents,
    write_messages,
    write_response_format,
    write_tools,
)
from apps.gateway.dialects.chat.cohere.wire import DOCUMENT, NAME, PLAN_FORMAT, encode
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    bounded_name,
    filled_string,
    integer,
    list_of,
    number,
    one_of,
    optional,
    record,
    required,
    string,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields

# Far beyond any model's.
MAX_TOOLS, MAX_STOPS = 1_000, 100
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MAX_TOKENS = 1_000_000_000
# Text that models read; it may be as long as a body.
_CONVERSATION = frozenset({"messages", "documents", "tools", "response_format"})
_CHOICES = {"REQUIRED": ToolChoice(mode="required"), "NONE": ToolChoice(mode="none")}
# Other names of the fields in the canonical language.
_NAMES = {"p": "top_p", "k": "top_k", "stop_sequences": "stop", "thinking": "reasoning"}


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest (`invalid_json`, `invalid_parameters`)."""
    chat = fields.read_body(body, _CONVERSATION, _read)
    chat.source = Source(dialect=NAME, body=body)
    return chat


def _read(wire: Record) -> Chat:
    known, extra = fields.read_known(wire, _FIELDS)
    chosen = {_NAMES.get(name, name): value for name, value in known.items()}
    take_router_fields(extra, chosen)
    for name in ("model", "messages"):
        if name not in chosen:
            raise Malformed("Required", name)
    if documents := chosen.pop("documents", None):
        add_documents(chosen["messages"], documents)
    tools = chosen.pop("tools", None) or None
    if chosen.pop("strict_tools", False) and tools:
        tools = [replace(tool, strict=True) for tool in tools]
    return Chat(**chosen, tools=tools, extra=extra or None, dialect=NAME)


def _tool(value: Any) -> FunctionTool:
    wire = record(value)
    optional(wire, "type", one_of("function"))
    tool = required(wire, "function", _function)
    extra = fields.rest_of(wire, frozenset({"type", "function"}))
    return replace(tool, extra={**extra, **(tool.extra or {})}) if extra else tool


def _function(value: Any) -> FunctionTool:
    wire = record(value)
    extra = fields.rest_of(wire, frozenset({"name", "description", "parameters"}))
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=optional(wire, "parameters", record),
        extra=None if extra is None else {"function": extra},
    )


def _tool_choice(value: Any) -> ToolChoice:
    return _CHOICES[one_of(*_CHOICES)(value)]


def _thinking(value: Any) -> ReasoningRequest:
    """Read how much to think; without a budget it is much."""
    wire = record(value)
    kind = required(wire, "type", one_of("enabled", "disabled"))
    budget = optional(wire, "token_budget", integer(1, MAX_TOKENS))
    if kind == "disabled":
        return ReasoningRequest(effort="none")
    return ReasoningRequest(effort="high") if budget is None else ReasoningRequest(max_tokens=budget)


def _response_format(value: Any) -> ResponseFormat:
    wire = record(value)
    kind = required(wire, "type", one_of("text", "json_object"))
    schema = optional(wire, "json_schema", record)
    if kind == "text" or schema is None:
        return ResponseFormat(kind=kind)
    return ResponseFormat(kind="json_schema", name="answer", schema=schema)


_LOGGED = ("messages", "tools", "tool_choice", "response_format")
_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    Documents are a message of the log. Raises InvalidRequest for what the format cannot express, which never happens to
    a chat that was read from it.
    """
    if chat.source is not None and chat.source.dialect == NAME:
        wire: Record = {name: raw for name, raw in _read_fields(chat.source.body).items() if raw != _NULL}
        if "documents" not in wire:
            return {name: wire[name] for name in _LOGGED if name in wire}
    target = Target(model_name=chat.model, facts={})
    wire = {"messages": write_messages(chat, target, thinks=True), **write_tools(chat, target)}
    if documents := write_documents(chat):
        wire["messages"].append({"role": "user", "documents": documents})
    if (form := write_response_format(chat)) is not None:
        wire["response_format"] = form
    return {name: wire[name] for name in _LOGGED if name in wire}


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as the field `tool_choice`; the format has no way to name one."""
    return "NONE" if choice.mode == "none" else "REQUIRED"


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: messages of theirs."""
    return [message for message in messages if message.get("role") == "tool"]


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


def _tool_message(wire: Record) -> Message:
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


def _thinking_part(wire: Record) -> Part:
    return Reasoning(text=required(wire, "thinking", string))


def _attached(wire: Record) -> Part:
    return required(wire, DOCUMENT, _document)


_PARTS: dict[str, Callable[[Record], Part]] = {
    "text": _text,
    "image_url": _image,
    "thinking": _thinking_part,
    DOCUMENT: _attached,
}


def _part_of(*kinds: str) -> Callable[[Any], Part]:
    read = fields.pick({kind: _PARTS[kind] for kind in kinds}, "type")
    return lambda value: read(record(value))


def _call(value: Any) -> ToolCall:
    wire = record(value)
    extra = fields.rest_of(wire, _CALL_FIELDS)
    call_id = required(wire, "id", filled_string)
    name, arguments = required(wire, "function", _called_function)
    return ToolCall(id=call_id, name=name, arguments=arguments, extra=extra)


def _called_function(value: Any) -> tuple[str, str]:
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
    "tool": _tool_message,
}
_read_by_role = fields.pick(_ROLES, "role")
_messages = list_of(lambda value: _read_by_role(record(value)), MAX_MESSAGES)


_FIELDS: dict[str, Reader[Any]] = {
    "model": bounded_name,
    "messages": read_messages,
    "documents": read_documents,
    "stream": boolean,
    "max_tokens": integer(1, MAX_TOKENS),
    "temperature": number(0, 2),
    "p": number(0, 1),
    "k": integer(0, MAX_TOKENS),
    "frequency_penalty": number(0, 2),
    "presence_penalty": number(0, 2),
    "stop_sequences": list_of(string, MAX_STOPS),
    "seed": integer(0, 2**63 - 1),
    "logprobs": boolean,
    "response_format": _response_format,
    "tools": list_of(_tool, MAX_TOOLS),
    "strict_tools": boolean,
    "tool_choice": _tool_choice,
    "thinking": _thinking,
}
