"""OpenAI Responses: server tools in this format: the servers that a request names, earlier calls, and new ones.

A request names servers in tools of type `mcp`. Fields that the gateway cannot honour are refused: there are no
approvals, and servers get the credentials that they were registered with. A model gets items `mcp_list_tools` and
`mcp_call` of an input as calls of functions and their results. The next turn's request is what a client of this format
would send: the items so far, with results of functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Finished, OpaqueDelta, Reply
from apps.gateway.dialects.chat.responses.client.write_reply import ResponseWriter
from apps.gateway.dialects.chat.responses.wire import MAX_ID, NAME, encode, mark, new_id
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    list_of,
    optional,
    record,
    required,
)
from apps.gateway.server_tools.loop import Answered, ModelTurn
from apps.gateway.server_tools.toolset import MAX_SERVERS, CallOutcome, OfferedTool, ServerCall, Toolset, WantedServer
from apps.mcp_servers.client import MAX_TOOLS, Tool
from apps.mcp_servers.tool_pins import joined_name

KIND: Final = "mcp"
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_READ: Final = frozenset({"type", "server_label", "server_url", "server_description", "allowed_tools"})
_OWN_CREDENTIALS: Final = "the server is sent the credentials that it was registered with; leave it out"
_WHY_NOT: Final = {
    "authorization": _OWN_CREDENTIALS,
    "headers": _OWN_CREDENTIALS,
    "connector_id": "connectors are not known here: name a registered MCP server",
    "tunnel_id": "tunnels are not known here: name a registered MCP server",
}
# Values that ask for what happens anyway.
_USUAL: Final[dict[str, tuple[Any, ...]]] = {
    "require_approval": ("never",),
    "defer_loading": (False,),
    "allowed_callers": (["direct"],),
    "headers": ({},),
}


def names_servers(wire: Record) -> bool:
    """Return whether a request names servers."""
    tools = wire.get("tools")
    return isinstance(tools, list) and any(isinstance(tool, dict) and tool.get("type") == KIND for tool in tools)


def read_servers(wire: Record) -> list[WantedServer]:
    """Return the servers that a request names. Raises InvalidRequest."""
    found = []
    try:
        for number, tool in enumerate(wire["tools"]):
            if isinstance(tool, dict) and tool.get("type") == KIND:
                place = f"tools[{number}]"
                found.append(fields.within(place, _reader(place), tool))
        if len(found) > MAX_SERVERS:
            raise Malformed(f"must name at most {MAX_SERVERS} MCP servers", "tools")
    except Malformed as refusal:
        raise refusal.as_error() from None
    return found


def own_names(wire: Record) -> frozenset[str]:
    """Return the names of a request's own tools."""
    return frozenset(str(tool["name"]) for tool in wire["tools"] if isinstance(tool, dict) and "name" in tool)


def chosen_tools(choice: Any, toolset: Toolset) -> Any:
    """Return `tool_choice` with functions instead of servers. Raises Malformed."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == KIND:
        names = _functions_of(choice, toolset)
        return {"type": "allowed_tools", "mode": "required", "tools": names} if len(names) > 1 else names[0]
    if choice.get("type") != "allowed_tools" or not isinstance(choice.get("tools"), list):
        return choice
    tools: list[Any] = []
    for number, tool in enumerate(choice["tools"]):
        is_server = isinstance(tool, dict) and tool.get("type") == KIND
        tools += fields.within(f"tools[{number}]", lambda it: _functions_of(it, toolset), tool) if is_server else [tool]
    return {**choice, "tools": tools}


def open_choice(choice: Any) -> Any:
    """Return the choice of a later turn: as the model likes, where the first was made to call something."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return {**choice, "mode": "auto"}
    return choice if choice in (None, "none") else "auto"


def _functions_of(choice: Record, toolset: Toolset) -> list[Record]:
    label = required(choice, "server_label", filled_string)
    name = optional(choice, "name", filled_string)
    offered = [one for one in toolset.of(label) if name in (None, one.tool.name)]
    if not offered:
        raise Malformed("names no tool that is offered", "server_label" if name is None else "name")
    return [{"type": "function", "name": one.function} for one in offered]


def _reader(place: str) -> Callable[[Any], WantedServer]:
    def read(value: Any) -> WantedServer:
        wire = record(value)
        if wire.get("require_approval") != "never":
            raise Malformed("must be never: the gateway does not ask for approval", "require_approval")
        for name in wire.keys() - _READ:
            if wire[name] is not None and wire[name] not in _USUAL.get(name, ()):
                problem = _WHY_NOT.get(name, "is not honoured for tools that the gateway calls; leave it out")
                raise Malformed(problem, name[: fields.MAX_QUOTED_NAME])
        optional(wire, "server_description", fields.string)
        url = optional(wire, "server_url", filled_string)
        return WantedServer(
            label=required(wire, "server_label", _label),
            url=url,
            place=place,
            field="server_label" if url is None else "server_url",
            is_wanted=_allowed(wire),
        )

    return read


def _label(value: Any) -> str:
    if not _LABEL.fullmatch(fields.string(value)):
        raise Malformed("must be at most 64 letters, digits, hyphens and underscores")
    return str(value)


def _allowed(wire: Record) -> Callable[[Tool], bool]:
    """Return which tools are allowed: those that are named, those that only read, or all of them."""
    given = wire.get("allowed_tools")
    if given is None:
        return lambda tool: True
    if isinstance(given, list):
        named = frozenset(fields.within("allowed_tools", _names, given))
        return lambda tool: tool.name in named
    rule = fields.within("allowed_tools", _filter, given)
    return lambda tool: (rule[0] is None or tool.name in rule[0]) and (rule[1] is None or _only_reads(tool) == rule[1])


def _filter(value: Any) -> tuple[frozenset[str] | None, bool | None]:
    wire = record(value)
    named = optional(wire, "tool_names", _names)
    return None if named is None else frozenset(named), optional(wire, "read_only", boolean)


def _only_reads(tool: Tool) -> bool:
    return (tool.definition.get("annotations") or {}).get("readOnlyHint") is True


_names = list_of(filled_string, MAX_TOOLS)


_CALL: Final = "mcp_call"
_LISTING: Final = "mcp_list_tools"
# Characters of a label that precede the name of a tool that is no longer offered.
_MAX_LABEL_LENGTH: Final = 40


def has_calls(items: Any) -> bool:
    """Return whether an input has items of server tools."""
    return isinstance(items, list) and any(isinstance(item, dict) and item.get("type") in _OURS for item in items)


def plain_items(items: Sequence[Any], toolset: Toolset) -> list[Any]:
    """Return an input without items of server tools: lists are left out, calls that stand together become functions'
    calls, with their results behind all of them."""
    left = [item for item in items if not (isinstance(item, dict) and item.get("type") == _LISTING)]
    plain: list[Any] = []
    for is_call, group in groupby(left, key=_is_call):
        if not is_call:
            plain += group
            continue
        pairs = [_pair(item, toolset) for item in group]
        plain += [call for call, _ in pairs]
        plain += [result for _, result in pairs]
    return plain


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == _CALL


def _pair(item: Record, toolset: Toolset) -> tuple[Record, Record]:
    label, name, call_id = (item.get(field) for field in ("server_label", "name", "id"))
    if not isinstance(call_id, str) or not 0 < len(call_id) <= MAX_ID:
        call_id = new_id("mcp_")
    label, name = str(label or ""), str(name or "tool")
    function = toolset.function_of(label, name) or joined_name(label[:_MAX_LABEL_LENGTH], name)
    arguments = item.get("arguments")
    call = {
        "type": "function_call",
        "call_id": call_id,
        "name": function,
        "arguments": arguments if isinstance(arguments, str) else "{}",
    }
    return call, {"type": "function_call_output", "call_id": call_id, "output": _result(item)}


def _result(item: Record) -> str:
    error, output = item.get("error"), item.get("output")
    said = output if isinstance(output, str) else ""
    if error is None:
        return said
    words = f"Error: {error if isinstance(error, str) else encode(error).decode()}"
    return f"{words}\n{said}" if said else words


# Compared, not looked up: what a client wrote as a type may be anything.
_OURS: Final = (_CALL, _LISTING)


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
