"""Anthropic Messages: server tools in this format: sets of tools, blocks `mcp_tool_use` and `mcp_tool_result`.

The next turn's request is what a client of this format would send: the messages so far, with results of tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Choice, Event, Finished, OpaqueDelta, Reply
from apps.gateway.canonical.fold import ReplyBuilder
from apps.gateway.dialects.chat.anthropic.client.write_reply import write_image, write_reply
from apps.gateway.dialects.chat.anthropic.wire import NAME, encode, new_id, read_input
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.server_tools.calls import CallOutcome, ServerCall
from apps.gateway.server_tools.loop import Answered
from apps.gateway.server_tools.messages_history import plain_messages
from apps.gateway.server_tools.messages_request import SERVERS, is_named
from apps.gateway.server_tools.toolset import OfferedTool, Toolset, WantedServer
from apps.gateway.server_tools.turn import ModelTurn


class MessagesForm:
    """A conversation of this format in which the gateway calls tools."""

    # The format has no word for it.
    max_calls: int | None = None

    def __init__(self, wire: Record, wanted: Sequence[WantedServer], toolset: Toolset) -> None:
        """Take a request's body, the servers that it names, and their tools."""
        self.toolset = toolset
        self._messages = plain_messages(wire["messages"], toolset)
        self._choice = wire.get("tool_choice")
        self._wire = {name: value for name, value in wire.items() if name not in (SERVERS, "tools", "tool_choice")}
        self._tools = self._functions(wire.get("tools") or [], wanted)
        # The client's answer, block by block, and the id of each call in it.
        self._content: list[Any] = []
        self._ids: dict[str, str] = {}
        self._first: Reply | None = None
        self._last = Reply()

    def first_body(self) -> bytes:
        """Return the body of the first turn's request."""
        return self._body(self._choice)

    def begin_turn(self, chat: Chat) -> MessagesTranscript:
        """Return the transcript of a turn that begins."""
        return MessagesTranscript(chat)

    def listed(self) -> list[Event]:
        """The format does not tell of tools that are only there."""
        return []

    def called(self, asked: ServerCall) -> list[Event]:
        """Return the block of a call."""
        self._ids[asked.id] = new_id("mcptoolu_")
        written = {"type": "input_json_delta", "partial_json": bytes(read_input(asked.arguments)).decode()}
        return [_stream(start={**self._use(asked), "input": {}}), _stream(delta=written)]

    def answered(self, asked: ServerCall, outcome: CallOutcome) -> list[Event]:
        """Return the block of its result."""
        return [_stream(start=self._result(asked, outcome))]

    def end_turn(self, turn: ModelTurn, answered: Answered) -> None:
        """Add what the model said, and what its calls came to."""
        transcript = turn.transcript
        if isinstance(transcript, MessagesTranscript):
            content, self._last = transcript.content(turn), transcript.reply()
            self._first = self._first or self._last
            self._messages = [*self._messages, {"role": "assistant", "content": content}]
            self._content += [block for block in content if not self._is_call(block)]
        for asked, outcome in answered:
            self._content += [self._use(asked), self._result(asked, outcome)]
        if answered:
            results = [_given_result(asked, outcome) for asked, outcome in answered]
            self._messages = [*self._messages, {"role": "user", "content": results}]
        self._ids.clear()

    def next_body(self, *, last: bool) -> bytes:
        """Return the body of the next turn's request. The first turn called the tool that the client requires."""
        choice = self._choice
        if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
            choice = {**{name: value for name, value in choice.items() if name != "name"}, "type": "auto"}
        return self._body({"type": "none"} if last else choice)

    def reply(self, finish: Finished) -> Reply:
        """Return the whole answer: the last turn's, with the blocks of all of them, under the first one's id."""
        first, last = self._first or self._last, self._last
        choice = last.choices[0] if last.choices else Choice()
        choice = replace(
            choice,
            finish=finish.reason,
            native_finish=finish.native,
            stop_sequence=finish.stop_sequence,
            extra={**choice.extra, NAME: {**choice.extra.get(NAME, {}), "content": self._content}},
        )
        return replace(last, id=first.id, log_id=first.log_id, created=first.created, choices=[choice])

    def _body(self, choice: Any) -> bytes:
        tools = {"tools": self._tools} if self._tools else {}
        chosen = {"tool_choice": choice} if choice is not None and self._tools else {}
        return encode({**self._wire, **tools, **chosen, "messages": self._messages})

    def _functions(self, tools: Sequence[Any], wanted: Sequence[WantedServer]) -> list[Any]:
        """Return the tools with functions instead of each set; servers without a set come last."""
        left = {one.label for one in wanted}
        found: list[Any] = []
        for tool in tools:
            label = next((one.label for one in wanted if is_named(tool, one.label)), None)
            if label is None:
                found.append(tool)
                continue
            left.discard(label)
            functions = [_function(one) for one in self.toolset.of(label)]
            if functions and tool.get("cache_control") is not None:
                functions[-1]["cache_control"] = tool["cache_control"]
            found += functions
        return [*found, *(_function(one) for one in self.toolset.by_function.values() if one.label in left)]

    def _is_call(self, block: Any) -> bool:
        name = block.get("name")
        return block.get("type") == "tool_use" and isinstance(name, str) and name in self.toolset.by_function

    def _use(self, asked: ServerCall) -> Record:
        return {
            "type": "mcp_tool_use",
            "id": self._ids[asked.id],
            "name": asked.offered.tool.name,
            "server_name": asked.offered.label,
            "input": read_input(asked.arguments),
        }

    def _result(self, asked: ServerCall, outcome: CallOutcome) -> Record:
        content = [{"type": "text", "text": outcome.text}] if outcome.text else []
        return {
            "type": "mcp_tool_result",
            "tool_use_id": self._ids[asked.id],
            "is_error": outcome.is_error,
            "content": content,
        }


class MessagesTranscript:
    """A turn's blocks, as a client would send them back."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._fold = ReplyBuilder()

    def add(self, event: Event) -> None:
        """Take note of an event."""
        self._fold.add(event)

    def shown(self, event: Event) -> Iterable[Event]:
        """Return the client's events for a provider's own blocks: they follow one another anyway."""
        return [event]

    def reply(self) -> Reply:
        """Return the turn's whole answer."""
        return self._fold.reply()

    def content(self, turn: ModelTurn) -> list[Any]:
        """Return the blocks of the turn, which has come to its end."""
        if turn.summary is None:
            return []
        message = msgspec.json.decode(write_reply(self.reply(), turn.summary, self._chat))
        return list(message["content"])


def _stream(**data: Record) -> OpaqueDelta:
    return OpaqueDelta(dialect=NAME, of="stream", data=data)


def _function(one: OfferedTool) -> Record:
    definition = one.tool.definition
    about = {"description": definition["description"]} if definition.get("description") else {}
    return {"name": one.function, **about, "input_schema": definition["inputSchema"]}


def _given_result(asked: ServerCall, outcome: CallOutcome) -> Record:
    """Return a result as a client would give it."""
    text = [{"type": "text", "text": outcome.text}] if outcome.text else []
    images = [write_image(f"data:{kind};base64,{data}") for kind, data in outcome.images]
    failed = {"is_error": True} if outcome.is_error else {}
    return {"type": "tool_result", "tool_use_id": asked.id, "content": [*text, *images], **failed}
