"""Watch of an answer's tool calls: collects them as they pass, and has rules check them once the answer has ended.

It connects the chat and its events with the rules that look at calls. No event waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.canonical.events import Event, ToolCallDelta, ToolCallStarted
from apps.gateway.guard.json_text import encode_json, parse_json_text
from apps.gateway.guard.placeholders import MaskedValue
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.guard.restoration import RestoredValues, restore_json, restore_text
from apps.guardrails.findings.scan_types import ArgumentMark, ConversationText, Finding, Origin, ToolCallRequest
from apps.guardrails.scanning import engine
from apps.kernel.concurrency.native_thread_pool import offload_or_run
from apps.kernel.json_bounds import OutOfBounds

log = structlog.get_logger(__name__)

# Calls of one answer that are checked, and characters of their arguments.
MAX_CALLS: Final = 64
MAX_ARGUMENT_CHARACTERS: Final = 100_000
# Characters of a tool's name that are recorded.
_MAX_NAME: Final = 64
# Kinds of parts that may hold a tool's result.
_RESULTS: Final = frozenset({ToolResult, Opaque})
# Ends of the types under which providers' own tools answer: `web_search_tool_result`, `code_interpreter_output`.
_RESULT_TYPES: Final = ("_result", "_output")


class ToolCallWatch:
    """The tool calls of one answer; `marks` has what rules marked, for the log."""

    def __init__(self, guard: RequestGuard, chat: Chat, session: str, stated_effects: Mapping[str, bool]) -> None:
        """`session` is what the client names in a header; `stated_effects` has tools that state whether they have
        effects."""
        self._guard, self._chat, self._session, self._stated_effects = guard, chat, session, stated_effects
        self._calls: dict[tuple[int, int], tuple[str, list[str]]] = {}
        self._left = MAX_ARGUMENT_CHARACTERS

    def take(self, event: Event) -> None:
        """Take note of an event of the answer."""
        if type(event) is ToolCallStarted:
            if len(self._calls) < MAX_CALLS:
                self._calls[event.choice, event.index] = (event.name, [])
        elif type(event) is ToolCallDelta:
            call = self._calls.get((event.choice, event.index))
            if call is not None and self._left >= 0:
                self._left -= len(event.arguments)
                call[1].append(event.arguments)

    def check(self, size: int) -> None:
        """Have the rules check the calls, and record the marks; `size` is that of the request's body.

        Never raises: the answer has been given.
        """
        if not self._calls:
            return
        try:
            self._guard.record_calls(offload_or_run(size, self._marks))
        except Exception:
            log.exception("tool_calls.not_checked")

    def log_fields(self) -> dict[str, Any]:
        """Return the marks as the log has them, with the session; nothing where there are none."""
        marks = self._guard.marked_arguments
        if not marks:
            return {}
        return {"tool_argument_origins": marks, **({"session": self._session} if self._session else {})}

    def _marks(self) -> list[tuple[Finding, ArgumentMark]]:
        values = self._guard.masked_values
        calls = [
            ToolCallRequest(name[:_MAX_NAME], arguments, self._stated_effects.get(name))
            for name, pieces in self._calls.values()
            if (arguments := _read("".join(pieces), values)) is not None
        ]
        if not calls:
            return []
        said = _texts_of(self._chat)
        if values:
            said = (one._replace(text=restore_text(one.text, RestoredValues(values))) for one in said)
        return engine.check_calls(self._guard.compiled, list(said), calls)


def is_checked(guard: RequestGuard, chat: Chat) -> bool:
    """Return whether a rule checks the tool calls of the answer: only after a tool's first result."""
    return not chat.kinds.isdisjoint(_RESULTS) and guard.compiled.checks_calls


def _read(arguments: str, values: Mapping[str, MaskedValue]) -> Any:
    """Return the JSON of a call's arguments, with the values of its placeholders; None for other or too much text."""
    try:
        read = parse_json_text(arguments)
    except OutOfBounds:
        return None
    return restore_json(read, RestoredValues(values)) if values else read


def _texts_of(chat: Chat) -> Iterator[ConversationText]:
    """Yield the texts of a chat in order. Descriptions of tools count as stated by the client's program."""
    for tool in chat.tools or ():
        if isinstance(tool, FunctionTool):
            yield ConversationText("stated", f"{tool.description or ''}\n{encode_json(tool.parameters)}")
    names: dict[str, str] = {}
    for message in chat.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
            yield from _texts_in(part, message, names)


def _texts_in(part: Part, message: Message, names: Mapping[str, str]) -> Iterator[ConversationText]:
    origin: Origin = "model" if message.role == "assistant" else "stated"
    match part:
        case Text() | Reasoning() | Refusal():
            yield ConversationText(origin, part.text)
        case ToolCall():
            yield ConversationText("model", part.arguments)
        case ToolResult():
            tool = part.name or names.get(part.call_id, "")
            for inner in part.parts:
                if isinstance(inner, Text):
                    yield ConversationText("tool_result", inner.text, tool[:_MAX_NAME])
                elif isinstance(inner, Opaque):
                    yield ConversationText("tool_result", encode_json(inner.data), tool[:_MAX_NAME])
        case Opaque():
            kind = part.data.get("type") if isinstance(part.data, dict) else None
            if isinstance(kind, str) and kind.endswith(_RESULT_TYPES):
                yield ConversationText("tool_result", encode_json(part.data), kind[:_MAX_NAME])
            else:
                yield ConversationText(origin, encode_json(part.data))
