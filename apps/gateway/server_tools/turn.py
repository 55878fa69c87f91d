"""Turn: one request to a model within an answer of several: its events, as they belong into the whole answer.

Calls of server tools are withheld: the loop makes them, and reports them itself. Numbers of calls and thoughts, which
restart with each turn, are made distinct.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final, Protocol

from msgspec.structs import replace

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Failed,
    Finished,
    OpaqueDelta,
    ReasoningDelta,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from apps.gateway.run import ChatRun
from apps.gateway.server_tools.calls import ServerCall
from apps.gateway.server_tools.toolset import Toolset

# Between the numbers of one turn and the next.
STEP: Final = 1_000_000
# How an answer ends that was not cut off.
_WHOLE: Final = frozenset({"stop", "tool_calls"})


class TurnTranscript(Protocol):
    """A client format's transcript of a turn, from which the next goes on."""

    def add(self, event: Event) -> None:
        """Take note of an event, as the model's answer has it."""

    def shown(self, event: Event) -> Iterable[Event]:
        """Return the client's events for an event of a wire format's own (`OpaqueDelta`)."""


class ModelTurn:
    """One run of a model, `number` of them before it."""

    def __init__(
        self, run: ChatRun, number: int, toolset: Toolset, transcript: TurnTranscript, characters: int
    ) -> None:
        """`characters` is how many the client was given in the turns before it."""
        self.transcript = transcript
        self.finish = Finished(reason="stop")
        self.started = Started()
        self.summary: Summary | None = None
        self.characters = characters
        # Whether the model asks for a tool of the client's own.
        self.asks_client = False
        self._run, self._number, self._toolset, self._before = run, number, toolset, characters
        self._calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}

    def events(self) -> Generator[Event, None, None]:
        """Yield the client's events of the turn, without its end. The turn is recorded when this has come to its end.

        Raises ApiError.
        """
        events = self._run.events()
        try:
            for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Summary):
                    self.summary = event
                elif event.choice == 0:
                    yield from self._passed(event)
        finally:
            events.close()

    @property
    def calls(self) -> list[ServerCall]:
        """The calls of server tools that the model asks for; none of an answer that was cut off."""
        if self.finish.reason not in _WHOLE:
            return []
        return [
            ServerCall(id=call.id, offered=self._toolset.by_function[call.name], arguments="".join(pieces))
            for call, pieces in self._calls.values()
        ]

    def _passed(self, event: Event) -> Iterator[Event]:
        self.transcript.add(event)
        match event:
            case Finished():
                self.finish = event
            case Started() | UsageReported():
                self.started = event if isinstance(event, Started) else self.started
                if not self._number:
                    yield event
            case ToolCallStarted() if self._is_ours(event):
                self._calls[event.index] = event, []
            case ToolCallDelta() if event.index in self._calls:
                self._calls[event.index][1].append(event.arguments)
            case TextDelta():
                self.characters += len(event.text)
                yield event
            case OpaqueDelta():
                yield from self.transcript.shown(event)
            case _:
                yield self._moved(event)

    def _is_ours(self, call: ToolCallStarted) -> bool:
        is_ours = call.name in self._toolset.by_function and not (call.extra or {}).get("namespace")
        self.asks_client = self.asks_client or not is_ours
        return is_ours

    def _moved(self, event: Event) -> Event:
        """Return an event with its numbers and places, as they are in the whole answer."""
        shift = self._number * STEP
        match event:
            case ToolCallStarted() | ToolCallDelta():
                return replace(event, index=event.index + shift)
            case ReasoningDelta():
                return replace(event, block=event.block + shift)
            case Annotated():
                return replace(event, annotation=_moved(event.annotation, self._before))
        return event


def _moved(note: dict[str, Any], by: int) -> dict[str, Any]:
    """Return a citation of a text that stands behind so many characters."""
    page = note.get("url_citation")
    if not by or not isinstance(page, dict):
        return note
    places = {
        name: page[name] + by
        for name in ("start_index", "end_index")
        if isinstance(page.get(name), int) and not isinstance(page[name], bool)
    }
    return {**note, "url_citation": {**page, **places}}
