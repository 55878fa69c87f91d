"""Call pairing: ids for tool calls of formats without them; a result belongs to a call by its name and order."""

from __future__ import annotations

from collections import deque

from apps.gateway.canonical.chat import Message, ToolCall, ToolResult


def pair_calls(messages: list[Message]) -> None:
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
        # In the order of the calls.
        self._ids: dict[str, None] = {}
        # The number of calls without an id of the client's, and of all calls.
        self._unnamed: dict[str, deque[str]] = {}
        self._named: dict[str, deque[str]] = {}

    def add(self, call: ToolCall, name: str) -> None:
        """Take in a call; one without an id gets `name` for one."""
        if not call.id:
            call.id = name
            self._unnamed.setdefault(call.name, deque()).append(name)
        self._named.setdefault(call.name, deque()).append(call.id)
        self._ids[call.id] = None

    def answer(self, result: ToolResult) -> str:
        """Return the id of the call that a result answers: the one it names, else the first of its function, else, for
        a result that names neither, the first call."""
        if result.call_id in self._ids:
            del self._ids[result.call_id]
            return result.call_id
        if not result.call_id and not result.name and self._ids:
            first = next(iter(self._ids))
            del self._ids[first]
            return first
        waiting = (self._unnamed if result.call_id else self._named).get(result.name or "", deque())
        while waiting:
            call_id = waiting.popleft()
            if call_id in self._ids:
                del self._ids[call_id]
                return call_id
        return result.call_id or f"call_of_{result.name}"
