"""Tool result pairing: exactly one result for each tool call, in the turn after it, and no id twice.

Providers refuse anything else. Clients send it all the same: after an answer was stopped, when an old part of a
conversation is cut away, when two of them write into one. Calls of formats without ids get one, and a result belongs to
a call by its name and order. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from apps.gateway.canonical.chat import DroppedField, Message, Text, ToolCall, ToolResult

# The text of a result that the client does not have.
MISSING = "The result of this call is not known."


def has_paired_results(messages: list[Message], *, runs: bool) -> bool:
    """Return whether nothing has to be repaired.

    `runs`: messages of one side that follow one another are one turn, in which the order of results does not matter.
    """
    waiting: set[str] = set()
    seen: set[str] = set()
    before = ""
    for message in messages:
        same_turn = runs and (message.role != "assistant" or before == "assistant")
        before = message.role
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    if part.call_id not in waiting:
                        return False
                    waiting.remove(part.call_id)
            continue
        if not same_turn:
            if waiting:
                return False
            seen.clear()
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.id in seen:
                    return False
                seen.add(part.id)
                waiting.add(part.id)
    return not waiting


def pair(messages: list[Message], *, runs: bool) -> tuple[list[Message], list[DroppedField]]:
    """Return the conversation with one result for each call, and what had to be changed for that.

    A result moves behind its call; of several the first counts. A result of no call becomes the user's words, so that
    what it says is not lost; a call without a result gets one that says so. An id that a turn has twice is changed.
    """
    conversation = _Conversation(runs=runs)
    for number, message in enumerate(messages):
        conversation.add(number, message)
    return list(conversation.written()), conversation.dropped_fields


@dataclass(slots=True)
class _Call:
    """A call: its id in the client's words and as sent, and its result."""

    said: str
    sent: str
    result: Message | None = None
    # Whether another message than a result has come since.
    passed: bool = False


@dataclass(slots=True)
class _Turn:
    """A message, and the calls in it."""

    number: int
    message: Message
    calls: list[_Call] = field(default_factory=list)


class _Conversation:
    """The turns read so far, and the calls that the next results may belong to."""

    def __init__(self, *, runs: bool) -> None:
        self.dropped_fields: list[DroppedField] = []
        self._runs = runs
        self._turns: list[_Turn] = []
        self._latest: dict[str, list[_Call]] = {}
        self._ids: set[str] = set()

    def add(self, number: int, message: Message) -> None:
        """Take in a message."""
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self._answer(number, message, part)
            return
        turn = _Turn(number, message)
        before = self._turns[-1].message.role if self._turns else ""
        if not self._runs or (message.role == "assistant" and before != "assistant"):
            for calls in self._latest.values():
                for call in calls:
                    call.passed = True
            self._ids.clear()
        self._turns.append(turn)
        if message.role == "assistant" and any(isinstance(part, ToolCall) for part in message.parts):
            self._call(turn)

    def _call(self, turn: _Turn) -> None:
        parts = list(turn.message.parts)
        here: dict[str, list[_Call]] = {}
        for place, part in enumerate(parts):
            if isinstance(part, ToolCall):
                call = _Call(part.id, self._free(part.id))
                if call.sent != call.said:
                    self._note(turn.number, "tool_calls", f"the id {part.id[:64]} is used again: sent as {call.sent}")
                    parts[place] = replace(part, id=call.sent)
                turn.calls.append(call)
                here.setdefault(part.id, []).append(call)
        self._latest |= here
        turn.message = replace(turn.message, parts=parts)

    def _free(self, name: str) -> str:
        """Return an id that no call has yet: the name itself, or with a number behind it."""
        found, count = name, 1
        while found in self._ids:
            count += 1
            found = f"{name[:50]}_{count}"
        self._ids.add(found)
        return found

    def _answer(self, number: int, message: Message, result: ToolResult) -> None:
        calls = self._latest.get(result.call_id)
        if calls is None:
            self._note(number, "tool_call_id", "no call has this id: sent as the user's words")
            words = Text(text=f"Result of a tool call that is not part of this conversation ({result.call_id[:64]}):")
            self._turns.append(_Turn(number, Message(role="user", parts=[words, *result.parts])))
            return
        call = next((call for call in calls if call.result is None), None)
        if call is None:
            self._note(number, "tool_call_id", "the call has a result already: left out")
            return
        if call.passed:
            self._note(number, "tool_call_id", "a result has to follow its call: moved there")
        call.result = replace(message, parts=[replace(result, call_id=call.sent)])

    def written(self) -> Iterator[Message]:
        """Yield the messages, the results of a turn's calls behind it."""
        waiting: list[Message] = []
        for turn in self._turns:
            if not (self._runs and turn.message.role == "assistant"):
                yield from waiting
                waiting = []
            yield turn.message
            waiting += [call.result or self._unknown(turn, call) for call in turn.calls]
            if not self._runs:
                yield from waiting
                waiting = []
        yield from waiting

    def _unknown(self, turn: _Turn, call: _Call) -> Message:
        self._note(turn.number, "tool_calls", f"the call {call.said[:64]} has no result: sent as unknown")
        said = ToolResult(call_id=call.sent, parts=[Text(text=MISSING)], is_error=True)
        return Message(role="tool", parts=[said])

    def _note(self, number: int, name: str, why: str) -> None:
        self.dropped_fields.append(DroppedField(f"messages[{number}].{name}", why))


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
