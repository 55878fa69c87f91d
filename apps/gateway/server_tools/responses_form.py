"""OpenAI Responses: server tools in this format: tools of type `mcp`, items `mcp_list_tools` and `mcp_call`.

The next turn's request is what a client of this format would send: the items so far, with results of functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Finished, OpaqueDelta, Reply
from apps.gateway.dialects.chat.responses.client.write_reply import ResponseWriter
from apps.gateway.dialects.chat.responses.wire import NAME, encode, mark, new_id
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Record
from apps.gateway.server_tools.calls import CallOutcome, ServerCall
from apps.gateway.server_tools.loop import Answered
from apps.gateway.server_tools.responses_history import plain_items
from apps.gateway.server_tools.responses_request import chosen_tools, open_choice
from apps.gateway.server_tools.toolset import OfferedTool, Toolset, WantedServer
from apps.gateway.server_tools.turn import ModelTurn

_PROTOCOL: Final = "mcp_tool_execution_error"


class ResponsesForm:
    """A conversation of this format in which the gateway calls tools."""

    def __init__(self, wire: Record, wanted: Sequence[WantedServer], toolset: Toolset, items: list[Any]) -> None:
        """Take a request's body, the servers that it names, their tools, and its input as items.

        Raises InvalidRequest for a `tool_choice` that names none of them, and for a `max_tool_calls` that is no number.
        """
        self.toolset = toolset
        self._labels = [one.label for one in wanted]
        listed = [item.get("server_label") for item in items if _is_listing(item)]
        self._unlisted = [label for label in self._labels if label not in listed]
        self._items = plain_items(items, toolset)
        self._ids: dict[str, str] = {}
        self._at = 0
        try:
            self.max_calls = fields.optional(wire, "max_tool_calls", fields.integer(1))
            choice = fields.within("tool_choice", lambda it: chosen_tools(it, toolset), wire.get("tool_choice"))
        except Malformed as refusal:
            raise refusal.as_error() from None
        self._wire = {name: value for name, value in wire.items() if name not in ("max_tool_calls", "tool_choice")}
        self._wire["tools"] = [one for tool in wire["tools"] for one in self._offered(tool)]
        self._choice = choice

    def first_wire(self) -> Record:
        """Return the body of the first turn's request."""
        return self._with_choice(self._choice)

    def begin_turn(self, chat: Chat) -> ResponsesTranscript:
        """Return the transcript of a turn that begins."""
        return ResponsesTranscript(chat)

    def listed(self) -> list[Event]:
        """Return the items that list the servers' tools; of a server that the input has a list of there is none."""
        labels, self._unlisted = self._unlisted, []
        events: list[Event] = []
        for label in labels:
            item = {"id": new_id("mcpl_"), "type": "mcp_list_tools", "server_label": label, "error": None}
            whole = {**item, "tools": [_listed(one) for one in self.toolset.of(label)]}
            events += self._whole_item(
                whole, [{**item, "tools": []}], ["mcp_list_tools.in_progress", "mcp_list_tools.completed"]
            )
        return events

    def called(self, asked: ServerCall) -> list[Event]:
        """Return the beginning of a call's item, with its arguments."""
        item_id = self._ids[asked.id] = new_id("mcp_")
        at = self._next_place()
        place = {"item_id": item_id}
        return [
            mark(at, item={**_call(item_id, asked), "arguments": "", "status": "in_progress"}),
            _event(at, "mcp_call.in_progress", **place),
            _event(at, "mcp_call_arguments.delta", **place, delta=asked.arguments),
            _event(at, "mcp_call_arguments.done", **place, arguments=asked.arguments),
        ]

    def answered(self, asked: ServerCall, outcome: CallOutcome) -> list[Event]:
        """Return the end of a call's item."""
        item_id = self._ids.pop(asked.id)
        item = {**_call(item_id, asked), "status": "failed" if outcome.is_error else "completed"}
        item |= {"error": _error_of(outcome)} if outcome.is_error else {"output": outcome.text}
        word = "mcp_call.failed" if outcome.is_error else "mcp_call.completed"
        return [_event(-self._at, word, item_id=item_id), mark(-self._at, done=item)]

    def end_turn(self, turn: ModelTurn, answered: Answered) -> None:
        """Add what the model said, and what its calls came to."""
        transcript = turn.transcript
        if isinstance(transcript, ResponsesTranscript) and turn.summary is not None:
            self._items += transcript.output(turn)
        self._items += [_output(asked, outcome) for asked, outcome in answered]

    def next_body(self, *, last: bool) -> bytes:
        """Return the body of the next turn's request. The first turn called the tool that the client requires."""
        return encode(self._with_choice("none" if last else open_choice(self._choice)))

    def reply(self, finish: Finished) -> Reply:
        """This format's whole answers are written from events."""
        raise NotImplementedError

    def _with_choice(self, choice: Any) -> Record:
        choice_field = {} if choice is None or not self._wire["tools"] else {"tool_choice": choice}
        return {**self._wire, **choice_field, "input": self._items}

    def _offered(self, tool: Any) -> list[Record]:
        """Return the functions that stand for a server of the request; any other tool stands for itself."""
        if not (isinstance(tool, dict) and tool.get("type") == "mcp"):
            return [tool]
        about = tool.get("server_description")
        return [_function(one, about) for one in self.toolset.of(tool["server_label"])]

    def _next_place(self) -> int:
        """Return a place of the gateway's own for an item: providers' are not below 0."""
        self._at += 1
        return -self._at

    def _whole_item(self, whole: Record, begun: list[Record], words: list[str]) -> list[Event]:
        at = self._next_place()
        news = [_event(at, word, item_id=whole["id"]) for word in words]
        return [mark(at, item=begun[0]), *news, mark(at, done=whole)]


class ResponsesTranscript:
    """A turn's items, as a client would send them back."""

    def __init__(self, chat: Chat) -> None:
        self._writer = ResponseWriter(chat)
        self._is_marked = False

    def add(self, event: Event) -> None:
        """Take note of an event."""
        self._writer.write(event)

    def shown(self, event: Event) -> Iterable[Event]:
        """Return the client's events for a provider's own items: their places are those of their turn."""
        if not isinstance(event, OpaqueDelta) or event.dialect != NAME:
            return [event]
        if event.of == "stream":
            self._is_marked = True
            return [OpaqueDelta(dialect=NAME, of="stream", data={**event.data, "at": (id(self), event.data.get("at"))})]
        if event.of != "message":
            return [event]
        whole = event.data.get("output") if not self._is_marked else None
        return [
            half
            for number, item in enumerate(whole or ())
            if isinstance(item, dict)
            for half in (
                OpaqueDelta(dialect=NAME, of="stream", data={"at": (id(self), number, "whole"), "item": item}),
                OpaqueDelta(dialect=NAME, of="stream", data={"at": (id(self), number, "whole"), "done": item}),
            )
        ]

    def output(self, turn: ModelTurn) -> list[Any]:
        """Return the items of the turn, which has come to its end."""
        if turn.summary is not None:
            self._writer.write(turn.summary)
        return list((self._writer.response or {}).get("output") or ())


def _event(at: int, word: str, **fields: Any) -> OpaqueDelta:
    return mark(at, event={"type": f"response.{word}", **fields})


def _is_listing(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "mcp_list_tools"


def _call(item_id: str, asked: ServerCall) -> Record:
    return {
        "id": item_id,
        "type": "mcp_call",
        "approval_request_id": None,
        "arguments": asked.arguments,
        "error": None,
        "name": asked.offered.tool.name,
        "output": None,
        "server_label": asked.offered.label,
    }


def _error_of(outcome: CallOutcome) -> Record:
    """Return what failed: a tool in its own words, or the call of it, with the gateway's status."""
    if outcome.error is not None:
        return {"type": "http_error", "code": outcome.error.status, "message": outcome.error.message}
    return {"type": _PROTOCOL, "content": [{"type": "text", "text": outcome.text}]}


def _output(asked: ServerCall, outcome: CallOutcome) -> Record:
    """Return a result as a client would give it."""
    output: Any = f"Error: {outcome.text}" if outcome.is_error else outcome.text
    if images := outcome.images:
        shown = [{"type": "input_image", "image_url": f"data:{kind};base64,{data}"} for kind, data in images]
        output = [*([{"type": "input_text", "text": output}] if output else []), *shown]
    return {"type": "function_call_output", "call_id": asked.id, "output": output}


def _listed(one: OfferedTool) -> Record:
    definition = one.tool.definition
    return {
        "name": one.tool.name,
        "description": definition.get("description"),
        "input_schema": definition["inputSchema"],
        "annotations": definition.get("annotations"),
    }


def _function(one: OfferedTool, about: Any) -> Record:
    descriptions = [text for text in (about, one.tool.definition.get("description")) if isinstance(text, str) and text]
    return {
        "type": "function",
        "name": one.function,
        "description": "\n".join(descriptions) or None,
        "parameters": one.tool.definition["inputSchema"],
        "strict": False,
    }
