"""Google generateContent, client side: reads `contents` into canonical messages, a function's result as its own.

Knows roles, and that calls need no ids here: results then belong to calls by name and order. Must never know what a
provider can take.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from apps.gateway.canonical.chat import Message, Part, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.dialects.chat.google.client.read_parts import read_parts
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Record, optional, record, required, string

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
    _pair(messages)
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
    said: list[Part] = [part for part in parts if not isinstance(part, ToolResult | Reasoning)]
    if said or not turns:
        turns.append(Message(role="user", parts=said))
    turns[-1].extra = extra
    return turns


def _pair(messages: list[Message]) -> None:
    """Give calls without ids one, always the same, and results without ids that of the first call they may answer."""
    calls = _Unanswered()
    before = ""
    for number, message in enumerate(messages):
        if message.role == "assistant" and before != "assistant":
            calls = _Unanswered()
        before = message.role
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                calls.add(part, f"call_{number}_{place}")
            elif isinstance(part, ToolResult):
                part.call_id = calls.answer(part)


class _Unanswered:
    """The calls of a turn that wait for their results, by id and by name."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        # Of calls that have no id of the client's, and of all.
        self._unnamed: dict[str, deque[str]] = {}
        self._named: dict[str, deque[str]] = {}

    def add(self, call: ToolCall, name: str) -> None:
        """Take in a call; one without an id gets `name` for one."""
        if not call.id:
            call.id = name
            self._unnamed.setdefault(call.name, deque()).append(name)
        self._named.setdefault(call.name, deque()).append(call.id)
        self._ids.add(call.id)

    def answer(self, result: ToolResult) -> str:
        """Return the id of the call that a result answers: the one it names, else the first of its function."""
        if result.call_id in self._ids:
            self._ids.discard(result.call_id)
            return result.call_id
        waiting = (self._unnamed if result.call_id else self._named).get(result.name or "", deque())
        while waiting:
            call_id = waiting.popleft()
            if call_id in self._ids:
                self._ids.discard(call_id)
                return call_id
        return result.call_id or f"call_of_{result.name}"


_turns = fields.list_of(_turn, MAX_CONTENTS)
