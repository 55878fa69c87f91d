"""Anthropic Messages, client side: reads `messages` and `system` into canonical messages.

A user's message that brings tools' results becomes one message for each result, then one of what else it says. Knows
roles and blocks of the wire format. Must never know what a provider can take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.gateway.canonical.chat import Message, Part, Role, Text, ToolCall, ToolResult
from apps.gateway.dialects.chat.anthropic.client.read_blocks import (
    is_cited_abroad,
    read_content,
    read_result_content,
    read_system_content,
)
from apps.gateway.dialects.chat.anthropic.shared.wire import encode
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
MAX_MESSAGES, MAX_CALLS = 10_000, 1_000
# Roles and fields that are OpenAI's: understood, but no provider of this format takes them.
FOREIGN_ROLES = frozenset({"tool", "function", "developer"})
FOREIGN_FIELDS = frozenset({"tool_calls", "function_call", "tool_call_id", "name"})

_FIELDS = frozenset({"role", "content"}) | FOREIGN_FIELDS


def read_messages(value: Any) -> list[Message]:
    """Read `messages`."""
    found = _messages(value)
    if not found:
        raise Malformed("must hold at least one message")
    messages = [message for turn in found for message in turn]
    _pair_unnamed_calls(messages)
    return messages


def is_foreign(value: Any) -> bool:
    """Return whether messages that could be read hold what providers of this format refuse."""
    return any(
        message["role"] in FOREIGN_ROLES
        or any(message.get(name) is not None for name in FOREIGN_FIELDS)
        or (isinstance(content := message.get("content"), list) and any(map(is_cited_abroad, content)))
        for message in value
    )


def _pair_unnamed_calls(messages: list[Message]) -> None:
    """Give calls without ids (OpenAI's `function_call`) one, and each result the id of the latest call of its name."""
    latest: dict[str | None, str] = {}
    for number, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.id:
                part.id = latest[part.name] = f"call_{number}_{part.name}"
            elif isinstance(part, ToolResult) and not part.call_id:
                part.call_id = latest.get(part.name, f"call_{part.name}")


def _instruction(role: Role) -> Callable[[Record], list[Message]]:
    def read(wire: Record) -> list[Message]:
        parts = required(wire, "content", read_content if role == "user" else read_system_content)
        return [Message(role=role, parts=parts, extra=fields.rest_of(wire, _FIELDS))]

    return read


def _system(wire: Record) -> list[Message]:
    """Read instructions. In mid-conversation they may be but a change of how answers are made."""
    config: Record | None = optional(wire, "output_config", record)
    if config and wire.get("content") is None:
        return [Message(role="system", parts=[], extra=fields.rest_of(wire, _FIELDS))]
    return _instruction("system")(wire)


def _user(wire: Record) -> list[Message]:
    parts = required(wire, "content", read_content)
    extra = fields.rest_of(wire, _FIELDS)
    name = optional(wire, "name", string)
    turns = [Message(role="tool", parts=[part]) for part in parts if isinstance(part, ToolResult)]
    said: list[Part] = [part for part in parts if not isinstance(part, ToolResult)]
    if said:
        turns.append(Message(role="user", parts=said, name=name))
    if not turns:
        turns.append(Message(role="user", parts=[], name=name))
    turns[-1].extra = extra
    return turns


def _assistant(wire: Record) -> list[Message]:
    calls = optional(wire, "tool_calls", _calls) or []
    if call := optional(wire, "function_call", _function_call):
        calls.append(call)
    said = optional(wire, "content", read_content) if calls else required(wire, "content", read_content)
    parts: list[Part] = [*(said or ()), *calls]
    name = optional(wire, "name", string)
    return [Message(role="assistant", parts=parts, name=name, extra=fields.rest_of(wire, _FIELDS))]


def _tool(wire: Record) -> list[Message]:
    """Read a tool's answer as OpenAI writes it."""
    call_id = required(wire, "tool_call_id", filled_string)
    return [Message(role="tool", parts=[_result(wire, call_id)])]


def _function(wire: Record) -> list[Message]:
    """Read the answer of a function, as OpenAI wrote it before calls had ids."""
    required(wire, "name", filled_string)
    return [Message(role="tool", parts=[_result(wire, optional(wire, "tool_call_id", string) or "")])]


def _result(wire: Record, call_id: str) -> ToolResult:
    content = optional(wire, "content", read_result_content) or []
    return ToolResult(call_id=call_id, parts=content, name=optional(wire, "name", string))


def _call(value: Any) -> ToolCall:
    wire = record(value)
    call_id = required(wire, "id", filled_string)
    call = required(wire, "function", _function_call)
    call.id = call_id
    return call


def _function_call(value: Any) -> ToolCall:
    wire = record(value)
    arguments = wire.get("arguments")
    if isinstance(arguments, dict):
        arguments = encode(arguments).decode()
    if arguments is not None and not isinstance(arguments, str):
        raise Malformed("must be a string", "arguments")
    return ToolCall(id="", name=required(wire, "name", filled_string), arguments=arguments or "")


def read_system(value: Any) -> list[Part]:
    """Read `system`: without Claude Code's first block, which names its build and would differ from one to the next."""
    parts = read_system_content(value)
    return [part for part in parts if not (isinstance(part, Text) and part.text.startswith(_BILLING))]


_BILLING = "x-anthropic-billing-header:"
_ROLES: dict[str, Callable[[Record], list[Message]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _system,
    "developer": _instruction("developer"),
    "tool": _tool,
    "function": _function,
}
_read_by_role = fields.pick(_ROLES, "role")
_messages = list_of(lambda value: _read_by_role(record(value)), MAX_MESSAGES)
_calls = list_of(_call, MAX_CALLS)
