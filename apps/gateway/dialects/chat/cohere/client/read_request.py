"""Cohere Chat v2, client side: reads a request body into a canonical chat, and writes the request for the log.

Refusals name the field. Messages and documents are read in `read_messages.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, ReasoningRequest, ResponseFormat, Source, Target, ToolChoice
from apps.gateway.dialects.chat.cohere.client.read_messages import add_documents, read_documents, read_messages
from apps.gateway.dialects.chat.cohere.provider.write_request import (
    write_documents,
    write_messages,
    write_response_format,
    write_tools,
)
from apps.gateway.dialects.chat.cohere.wire import NAME
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
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
_MAX_NAME_LENGTH = 512
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


def _model(value: Any) -> str:
    if len(filled_string(value)) > _MAX_NAME_LENGTH:
        raise Malformed(f"must be at most {_MAX_NAME_LENGTH} characters long")
    return str(value)


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


_FIELDS: dict[str, Reader[Any]] = {
    "model": _model,
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
