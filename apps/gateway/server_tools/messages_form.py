"""Anthropic Messages: server tools in this format: the servers that a request names, earlier calls, and new ones.

A request names servers in sets of tools among `tools`, or, as in the first preview, with a `tool_configuration`;
refusals name the field. In an answer, a call and its result are blocks (`mcp_tool_use`, `mcp_tool_result`) of the
assistant's one message; a model gets them as a use of a tool and a result in the user's. The next turn's request is
what a client of this format would send: the messages so far, with results of tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Opaque, OpaqueTool
from apps.gateway.canonical.events import Choice, Event, Finished, OpaqueDelta, Reply, ReplyBuilder
from apps.gateway.dialects.chat.anthropic.client.write_reply import write_image, write_reply
from apps.gateway.dialects.chat.anthropic.wire import NAME, encode, new_id, read_input
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    list_of,
    one_of,
    optional,
    required,
)
from apps.gateway.server_tools.loop import Answered, ModelTurn
from apps.gateway.server_tools.toolset import MAX_SERVERS, CallOutcome, OfferedTool, ServerCall, Toolset, WantedServer
from apps.mcp_servers.client import MAX_TOOLS, Tool
from apps.mcp_servers.tool_pins import joined_name

TOOLSET: Final = "mcp_toolset"
# The field that names servers, and what the betas that switch it on begin with.
SERVERS, BETA = "mcp_servers", "mcp-client-"
_NOT_SENT: Final = "the server is sent the credentials that it was registered with; leave it out"
_IsWanted = Callable[[str], bool]


class _Server(msgspec.Struct, frozen=True):
    """A server as the field names it."""

    name: str
    url: str | None
    is_wanted: _IsWanted


def speaks_of_servers(chat: Chat) -> bool:
    """Return whether a request names servers, or brings back calls of their tools."""
    if chat.extra is not None and SERVERS in chat.extra:
        return True
    if any(isinstance(tool, OpaqueTool) and _is_toolset(tool.data) for tool in chat.tools or ()):
        return True
    return Opaque in chat.kinds and any(
        isinstance(part, Opaque) and isinstance(part.data, dict) and part.data.get("type") in OURS
        for message in chat.messages
        for part in message.parts
    )


def read_servers(wire: Record) -> list[WantedServer]:
    """Return the servers that a request names. Raises InvalidRequest."""
    try:
        servers = fields.within(SERVERS, list_of(_server, MAX_SERVERS), wire.get(SERVERS) or [])
        sets: dict[str, _IsWanted] = {}
        for number, tool in enumerate(wire.get("tools") or ()):
            if _is_toolset(tool):
                name, is_wanted = fields.within(f"tools[{number}]", _toolset, tool)
                if name in sets or all(server.name != name for server in servers):
                    raise Malformed("must name one of mcp_servers, once", f"tools[{number}].mcp_server_name")
                sets[name] = is_wanted
        for number, server in enumerate(servers):
            if sets and server.name not in sets:
                raise Malformed("is named by no mcp_toolset in tools", f"{SERVERS}[{number}].name")
    except Malformed as refusal:
        raise refusal.as_error() from None
    return [_wanted(number, server, sets.get(server.name)) for number, server in enumerate(servers)]


def _wanted(number: int, server: _Server, in_set: _IsWanted | None) -> WantedServer:
    def is_wanted(tool: Tool) -> bool:
        return server.is_wanted(tool.name) and (in_set is None or in_set(tool.name))

    return WantedServer(
        label=server.name,
        url=server.url,
        place=f"{SERVERS}[{number}]",
        field="name" if server.url is None else "url",
        is_wanted=is_wanted,
    )


def is_named(tool: Any, label: str) -> bool:
    """Return whether a tool of a request is the set of this server's tools."""
    return _is_toolset(tool) and bool(tool.get("mcp_server_name") == label)


def _is_toolset(tool: Any) -> bool:
    return isinstance(tool, dict) and tool.get("type") == TOOLSET


def _server(value: Any) -> _Server:
    wire = _only(value, "type", "url", "name", "authorization_token", "tool_configuration")
    required(wire, "type", one_of("url"))
    if wire.get("authorization_token") is not None:
        raise Malformed(_NOT_SENT, "authorization_token")
    return _Server(
        required(wire, "name", filled_string),
        optional(wire, "url", filled_string),
        optional(wire, "tool_configuration", _configuration) or _any,
    )


def _configuration(value: Any) -> _IsWanted:
    wire = _only(value, "enabled", "allowed_tools")
    enabled, allowed = optional(wire, "enabled", boolean), optional(wire, "allowed_tools", _names)
    return lambda name: enabled is not False and (allowed is None or name in allowed)


def _toolset(value: Any) -> tuple[str, _IsWanted]:
    wire = _only(value, "type", "mcp_server_name", "default_config", "configs", "cache_control")
    by_default = optional(wire, "default_config", _is_enabled)
    configs = optional(wire, "configs", fields.record) or {}
    single = fields.within("configs", _each_enabled, configs)

    def is_wanted(name: str) -> bool:
        said = single.get(name)
        return (by_default is not False) if said is None else said

    return required(wire, "mcp_server_name", filled_string), is_wanted


def _is_enabled(value: Any) -> bool | None:
    wire = _only(value, "enabled", "defer_loading")
    if optional(wire, "defer_loading", boolean):
        raise Malformed("is not honoured for tools that the gateway calls; leave it out", "defer_loading")
    return optional(wire, "enabled", boolean)


def _each_enabled(configs: Record) -> dict[str, bool | None]:
    return {name: required(configs, name, _is_enabled) for name in configs}


def _only(value: Any, *names: str) -> Record:
    wire = fields.record(value)
    for name, said in wire.items():
        if name not in names and said is not None:
            raise Malformed("is not honoured for tools that the gateway calls", name[: fields.MAX_QUOTED_NAME])
    return wire


def _any(name: str) -> bool:
    return True


_names = list_of(filled_string, MAX_TOOLS)


_USE, _RESULT = "mcp_tool_use", "mcp_tool_result"
OURS: Final = frozenset({_USE, _RESULT})
# Characters of a server's name that precede the name of a tool that is no longer offered.
_MAX_NAME_LENGTH: Final = 40


def plain_messages(messages: list[Any], toolset: Toolset) -> list[Any]:
    """Return a conversation without blocks of server tools."""
    plain: list[Any] = []
    results: list[Record] = []
    for message in messages:
        if results:
            message, results = _with_results(message, results, plain), []
        if message is None:
            continue
        if not _has_ours(message):
            plain.append(message)
            continue
        said: list[Any] = []
        for block in message["content"]:
            if _kind_of(block) == _RESULT:
                results.append(_result(block))
                continue
            if results:
                # The model went on when it had read them.
                plain += [{**message, "content": said}, {"role": "user", "content": results}]
                said, results = [], []
            said.append(_use(block, toolset) if _kind_of(block) == _USE else block)
        if said:
            plain.append({**message, "content": said})
    if results:
        plain.append({"role": "user", "content": results})
    return plain


def _with_results(message: Any, results: list[Record], plain: list[Any]) -> Any:
    """Return a message with the results before it, where it is the user's; else they are a message of their own."""
    if not isinstance(message, dict) or message.get("role") != "user":
        plain.append({"role": "user", "content": results})
        return message
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    return {**message, "content": [*results, *blocks]}


def _has_ours(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(_kind_of(block) in OURS for block in content)


def _kind_of(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _use(block: Record, toolset: Toolset) -> Record:
    server, name = str(block.get("server_name") or ""), str(block.get("name") or "tool")
    function = toolset.function_of(server, name) or joined_name(server[:_MAX_NAME_LENGTH], name)
    return {**_kept(block, "id", "input", "cache_control"), "type": "tool_use", "name": function}


def _result(block: Record) -> Record:
    return {**_kept(block, "tool_use_id", "content", "is_error", "cache_control"), "type": "tool_result"}


def _kept(block: Record, *names: str) -> Record:
    return {name: block[name] for name in names if block.get(name) is not None}


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
