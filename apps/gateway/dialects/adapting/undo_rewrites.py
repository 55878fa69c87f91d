"""Undoes rewrites of a request in its answer: renamed tools, and a structured output tool's call that is the answer.

Works on events, so that plain and streamed answers of every dialect are treated alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Rewrites, Target
from apps.gateway.canonical.events import (
    Event,
    Finished,
    OpaqueDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects.adapting.emulated_tools import restore_tools
from apps.gateway.dialects.adapting.stop_sequences import cut_at_stop

_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def undo_rewrites(events: Iterable[Event], target: Target) -> Iterator[Event]:
    """Yield an answer's events as they would have been, had its request not been changed for `target`."""
    rewrites = target.rewrites
    if rewrites.tool_names:
        events = _with_names(events, rewrites.tool_names)
    if rewrites.emulated:
        events = restore_tools(events, rewrites.emulated)
    if rewrites.hidden_tool is not None:
        events = _with_text(events, rewrites)
    return iter(events) if rewrites.stop is None else cut_at_stop(events, rewrites.stop)


def _with_names(events: Iterable[Event], names: dict[str, str]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, ToolCallStarted) and event.name in names:
            event = replace(event, name=names[event.name])
        yield event


def _with_text(events: Iterable[Event], rewrites: Rewrites) -> Iterator[Event]:
    """Yield events with the structured output tool's call as text. Opaque data of a whole reply would show the call."""
    choices: dict[int, _Hiding] = {}
    for event in events:
        if isinstance(event, UsageReported | Waiting):
            yield event
        elif not isinstance(event, OpaqueDelta) or event.of == "reply":
            hiding = choices.get(event.choice)
            if hiding is None:
                hiding = choices[event.choice] = _Hiding(rewrites)
            yield from hiding.read(event)


class _Hiding:
    """One choice: whether the structured output tool was called, and the text that is the answer if it never is."""

    def __init__(self, rewrites: Rewrites) -> None:
        self._hidden = rewrites.hidden_tool
        self._wrapped = rewrites.wrapped_in_value
        self._call: int | None = None
        self._shown: dict[int, int] = {}
        self._ignored: set[int] = set()
        self._words: list[TextDelta] = []
        self._arguments: list[str] = []

    def read(self, event: Event) -> Iterator[Event]:
        """Yield what an event becomes."""
        match event:
            case TextDelta():
                if self._call is None:
                    self._words.append(event)
            case ToolCallStarted():
                yield from self._begin(event)
            case ToolCallDelta():
                yield from self._add_arguments(event)
            case Finished():
                yield from self._end(event)
            case _:
                yield event

    def _begin(self, event: ToolCallStarted) -> Iterator[Event]:
        if event.name != self._hidden:
            self._shown[event.index] = len(self._shown)
            yield replace(event, index=self._shown[event.index])
        elif self._call is None:
            self._call = event.index
        else:
            self._ignored.add(event.index)

    def _add_arguments(self, event: ToolCallDelta) -> Iterator[Event]:
        if event.index == self._call:
            if self._wrapped:
                self._arguments.append(event.arguments)
            else:
                yield TextDelta(choice=event.choice, text=event.arguments)
        elif event.index not in self._ignored:
            yield replace(event, index=self._shown.get(event.index, event.index))

    def _end(self, event: Finished) -> Iterator[Event]:
        if self._call is None:
            yield from self._words
        elif self._wrapped:
            yield TextDelta(choice=event.choice, text=_value_of("".join(self._arguments)))
        called = event.reason == "tool_calls" and not self._shown
        yield replace(event, reason="stop") if called else event


def _value_of(arguments: str) -> str:
    """Return the text of the field `value`; the whole text where there is no such field."""
    try:
        return bytes(_read_fields(arguments)["value"]).decode()
    except (msgspec.MsgspecError, UnicodeError, KeyError, RecursionError):
        return arguments
