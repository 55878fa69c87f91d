"""Cohere Chat v2, provider side: reads the message of an answer: deltas of a stream, or a plain answer's message.

Knows content, plans, calls and citations. Must never know what stands around a message.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.dialects.chat.cohere.provider.read_citations import read_citation
from apps.gateway.dialects.chat.cohere.shared.wire import NAME, PLAN_FORMAT, Record, encode, new_id


class MessageReader:
    """What has been read of a message so far."""

    def __init__(self) -> None:
        self._blocks: dict[object, int] = {}
        self._calls: dict[object, int] = {}
        self._citations: list[Record] = []
        self._foreign: list[Record] = []
        self._said = self._said_nothing = False

    @property
    def has_calls(self) -> bool:
        """Whether the model called a tool."""
        return bool(self._calls)

    def read_whole(self, message: Record, events: list[Event]) -> None:
        """Add the events of a whole message."""
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else [{"text": content}]):
            self.read_content(part, place, events)
        self.read_plan(message.get("tool_plan"), events)
        calls = message.get("tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            self.start_call(call, place, events)
        citations = message.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self.read_citation(citation, events)

    def read_content(self, part: Any, place: object, events: list[Event]) -> None:
        """Add a part of the content, or more of it: text, or thinking."""
        if not isinstance(part, dict):
            return
        text, thought = part.get("text"), part.get("thinking")
        if isinstance(text, str) and text:
            self._said = True
            events.append(TextDelta(text=text))
        elif isinstance(text, str):
            self._said_nothing = True
        if isinstance(thought, str) and thought:
            block = self._blocks.setdefault(f"content {place!r}", len(self._blocks))
            events.append(ReasoningDelta(text=thought, block=block))
        if part.get("type") not in (None, "text", "thinking"):
            self._foreign.append(part)

    def read_plan(self, plan: Any, events: list[Event]) -> None:
        """Add what the model means to do with its tools, or more of it."""
        if isinstance(plan, str) and plan:
            block = self._blocks.setdefault("plan", len(self._blocks))
            events.append(ReasoningDelta(text=plan, format=PLAN_FORMAT, block=block))

    def start_call(self, call: Any, place: Any, events: list[Event]) -> None:
        """Add a call, with as much of its arguments as is there."""
        if not isinstance(call, dict):
            return
        inner = call.get("function")
        function: Record = inner if isinstance(inner, dict) else {}
        call_id, name = call.get("id"), function.get("name")
        index = self._calls[repr(place)] = len(self._calls)
        events.append(
            ToolCallStarted(
                index=index,
                id=call_id if isinstance(call_id, str) and call_id else new_id("call_"),
                name=name if isinstance(name, str) else "",
            )
        )
        self.go_on_with(call, place, events)

    def go_on_with(self, call: Any, place: Any, events: list[Event]) -> None:
        """Add more of a call's arguments; those of a call that nobody began are of a call without a name."""
        inner = call.get("function") if isinstance(call, dict) else None
        arguments = inner.get("arguments") if isinstance(inner, dict) else None
        if arguments is None or arguments == "":
            return
        if repr(place) not in self._calls:
            self.start_call({}, place, events)
        text = arguments if isinstance(arguments, str) else encode(arguments).decode()
        events.append(ToolCallDelta(index=self._calls[repr(place)], arguments=text))

    def read_citation(self, citation: Any, events: list[Event]) -> None:
        """Add a citation; what OpenAI has no words for in it goes along at the end."""
        if isinstance(citation, dict) and citation:
            self._citations.append(citation)
            events.extend(Annotated(annotation=found) for found in read_citation(citation))

    def read_logprobs(self, items: list[Any], events: list[Event]) -> None:
        """Add log probabilities. Cohere tells them by pieces of text of one token or more: a piece has their sum."""
        content = [written for item in items if (written := _logprob(item))]
        if content:
            events.append(Logprobs(logprobs={"content": content}))

    def end(self, events: list[Event]) -> None:
        """Add what could only be said now: that the text is empty, not absent; and what is only Cohere's."""
        if self._said_nothing and not self._said and not self.has_calls:
            events.append(TextDelta(text=""))
        if self._citations:
            events.append(OpaqueDelta(dialect=NAME, data={"citations": self._citations}))
        if self._foreign:
            events.append(OpaqueDelta(dialect=NAME, data={"content": self._foreign}))


def _logprob(item: Any) -> Record | None:
    """Return a piece of text with the probability of its tokens together, or None where that is not told."""
    if not isinstance(item, dict):
        return None
    text, values = item.get("text"), item.get("logprobs")
    if not isinstance(text, str) or not isinstance(values, list) or not values:
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    data = list(text.encode("utf-8", "replace"))
    return {"token": text, "logprob": sum(values), "bytes": data, "top_logprobs": []}
