"""Anthropic Messages, client side: reads a request body into a canonical chat, and writes the request for the log.

Refusals name the field. Unknown fields are kept: Anthropic's own clients send many.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    OpaqueTool,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    Source,
    Target,
    Tool,
    ToolChoice,
    WebSearchTool,
)
from apps.gateway.dialects.chat.anthropic.client.read_messages import cache_mark, is_foreign, read_messages, read_system
from apps.gateway.dialects.chat.anthropic.provider.write_messages import (
    is_signed,
    split_system,
    tool_choice_of,
    write_messages,
    write_system,
    write_tools,
)
from apps.gateway.dialects.chat.anthropic.wire import NAME, SIGNATURE_FORMAT, UNTHREADED, encode
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    bounded_name,
    filled_string,
    integer,
    list_of,
    number,
    one_of,
    optional,
    record,
    required,
    string,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.kernel.errors import InvalidRequest

# Far beyond any model's.
MAX_TOOLS = 1_000
WEB_SEARCH = "web_search_"

# Tools of Anthropic's own: most have the date of their version.
_OWN_TOOL = re.compile(r"[a-z0-9_]+_[0-9]{8}|mcp_toolset|tool_search_tool_(bm25|regex)")
_FUNCTION_FIELDS = frozenset({"type", "name", "description", "input_schema", "strict", "cache_control"})
_SEARCH_FIELDS = frozenset({"max_uses", "user_location", "cache_control"})
_MODES = {"auto": "auto", "none": "none", "any": "required", "tool": "named"}


def _tool(value: Any) -> Tool:
    wire = record(value)
    kind = optional(wire, "type", filled_string)
    if kind is None or kind == "custom":
        return FunctionTool(
            name=required(wire, "name", filled_string),
            description=optional(wire, "description", string),
            parameters=required(wire, "input_schema", record),
            strict=optional(wire, "strict", boolean),
            cache=cache_mark(wire),
            extra=fields.rest_of(wire, _FUNCTION_FIELDS),
        )
    if kind.startswith(WEB_SEARCH):
        return _web_search(wire)
    if not _OWN_TOOL.fullmatch(kind):
        raise Malformed("must be custom, or a kind of Anthropic's with its date (bash_20250124)", "type")
    return OpaqueTool(dialect=NAME, data=wire)


def _web_search(wire: Record) -> WebSearchTool:
    """Read a web search; its kind and what else only Anthropic's search knows come back as they are."""
    return WebSearchTool(
        user_location=optional(wire, "user_location", record),
        max_uses=optional(wire, "max_uses", integer(1)),
        cache=cache_mark(wire),
        extra=fields.rest_of(wire, _SEARCH_FIELDS),
    )


def read_tool_choice(value: Any) -> tuple[ToolChoice, bool | None]:
    """Read `tool_choice`, and whether calls may be parallel (None when it does not say)."""
    wire = record(value)
    kind = required(wire, "type", one_of(*_MODES))
    name = required(wire, "name", filled_string) if kind == "tool" else None
    single = optional(wire, "disable_parallel_tool_use", boolean)
    mode: Any = _MODES[kind]
    return ToolChoice(mode=mode, name=name), None if single is None else not single


read_tools = list_of(_tool, MAX_TOOLS)


MAX_STOPS = 1_000
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MAX_TOKENS = 1_000_000_000
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
# Text that models read; it may be as long as a body.
_CONVERSATION = frozenset({"messages", "system", "tools", "output_config"})
# The earlier name of `output_config.format`.
_OLD_FORMAT = "output_format"


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest (`invalid_json`, `invalid_parameters`)."""
    return _read(body, "model", "messages", "max_tokens")


def read_prompt(body: bytes) -> Chat:
    """Return the chat of a request that only asks how long it is: it needs no limit on the answer."""
    return _read(body, "model", "messages")


def _read(body: bytes, *needed: str) -> Chat:
    wire = fields.read_json(body)
    known: dict[str, Any] = {}
    extra: Record = {}
    try:
        if wire.get(_OLD_FORMAT) is not None:
            wire = _with_format(wire)
            body = encode(wire)
        fields.check_beside(wire, body, _CONVERSATION)
        for name, value in wire.items():
            if value is None:
                continue
            if read := _FIELDS.get(name):
                known[name] = fields.within(name, read, value)
            else:
                extra[name] = value
        if extra:
            take_router_fields(extra, known)
        for name in needed:
            if name not in known:
                raise Malformed("Required", name)
        chat = _chat_of(known, wire, extra)
    except Malformed as refusal:
        raise refusal.as_error() from None
    if not is_foreign(wire["messages"]) and not chat.web_search:
        chat.source = Source(dialect=NAME, body=body)
    return chat


def _with_format(wire: Record) -> Record:
    """Return the fields with the answer's form where Anthropic has it now; some clients know its preview's name."""
    form = fields.within(_OLD_FORMAT, record, wire[_OLD_FORMAT])
    config = fields.within("output_config", record, wire.get("output_config") or {})
    if config.get("format") not in (None, form):
        raise Malformed("contradicts output_config.format", _OLD_FORMAT)
    others = {name: value for name, value in wire.items() if name != _OLD_FORMAT}
    return {**others, "output_config": {**config, "format": form}}


def _chat_of(known: dict[str, Any], wire: Record, extra: Record) -> Chat:
    """Put the fields together. `thinking`, `output_config` and `metadata` have more members than the canonical model:
    they are kept whole beside the members that were read."""
    system = known.pop("system", None)
    if system:
        known["messages"] = [Message(role="system", parts=system), *known["messages"]]
    for name, meanings in (
        ("thinking", ("reasoning",)),
        ("output_config", ("effort", "response_format")),
        ("metadata", ("user",)),
    ):
        if name in known:
            extra[name] = wire[name]
            values = known.pop(name)
            known |= {meaning: value for meaning, value in zip(meanings, values, strict=True) if value is not None}
    if "stop_sequences" in known:
        known["stop"] = known.pop("stop_sequences")
    if "tool_choice" in known:
        known["tool_choice"], known["parallel_tool_calls"] = known["tool_choice"]
    known["tools"] = known.get("tools") or None
    return Chat(**known, extra=extra or None, dialect=NAME)


def _thinking(value: Any) -> tuple[ReasoningRequest | None]:
    """Read how much to think: not at all, or a stated budget; `adaptive` leaves it to the model."""
    wire = record(value)
    kind = required(wire, "type", filled_string)
    budget = required(wire, "budget_tokens", integer(1, MAX_TOKENS)) if kind == "enabled" else None
    if kind == "disabled":
        return (ReasoningRequest(effort="none"),)
    hidden = True if wire.get("display") == "omitted" else None
    if budget is None and hidden is None:
        return (None,)
    return (ReasoningRequest(max_tokens=budget, exclude=hidden),)


def _output_config(value: Any) -> tuple[str | None, ResponseFormat | None]:
    wire = record(value)
    effort = optional(wire, "effort", string)
    return effort if effort in _EFFORTS else None, optional(wire, "format", _format)


def _format(value: Any) -> ResponseFormat | None:
    wire = record(value)
    if required(wire, "type", filled_string) != "json_schema":
        return None
    return ResponseFormat(kind="json_schema", name="answer", schema=required(wire, "schema", record))


def _metadata(value: Any) -> tuple[str | None]:
    return (optional(record(value), "user_id", string),)


def _no_thread(value: Any) -> None:
    """Refuse to keep the conversation: the error code makes the client send it whole."""
    raise InvalidRequest("Conversations are not kept here: send all messages", code=UNTHREADED, param="thread")


_FIELDS: dict[str, Reader[Any]] = {
    "model": bounded_name,
    "messages": read_messages,
    "max_tokens": integer(1, MAX_TOKENS),
    "system": read_system,
    "temperature": number(0, 1),
    "top_p": number(0, 1),
    "top_k": integer(0, MAX_TOKENS),
    "stop_sequences": list_of(string, MAX_STOPS),
    "stream": boolean,
    "tools": read_tools,
    "tool_choice": read_tool_choice,
    "thinking": _thinking,
    "output_config": _output_config,
    "metadata": _metadata,
    "service_tier": string,
    "thread": _no_thread,
}


def unread_output_config(value: dict[str, Any]) -> Iterator[str]:
    """Yield the paths of the members of `output_config` that are not read."""
    for name, member in value.items():
        is_read = name == "format" or (name == "effort" and (member is None or str(member) in _EFFORTS))
        if not is_read:
            yield f"output_config.{name}"


_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    The system prompt, which this format has beside the messages, is the first of them. Raises InvalidRequest for what
    the format cannot express, which never happens to a chat that was read from it.
    """
    if chat.source is not None and chat.source.dialect == NAME:
        wire: Record = {name: raw for name, raw in _read_fields(chat.source.body).items() if raw != _NULL}
        form: Any = _read_fields(wire["output_config"]).get("format", _NULL) if "output_config" in wire else _NULL
        form = None if form == _NULL else form
    else:
        wire = _written(chat)
        form = None if chat.response_format is None else _form(chat.response_format)
    logged: Record = {"messages": wire["messages"]}
    if "system" in wire:
        messages = wire["messages"]
        rest = _read_entries(messages) if isinstance(messages, msgspec.Raw) else messages
        logged["messages"] = [{"role": "system", "content": wire["system"]}, *rest]
    logged |= {name: wire[name] for name in ("tools", "tool_choice") if name in wire}
    return logged if form is None else {**logged, "response_format": form}


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as the field `tool_choice`: names, and nothing that a client could hide in it."""
    return tool_choice_of(choice, parallel)


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: blocks of users' messages."""
    contents = [content for message in messages if isinstance(content := message.get("content"), list)]
    return [block for content in contents for block in content if block.get("type") == "tool_result"]


def _written(chat: Chat) -> Record:
    instructions, messages = split_system(chat.messages)
    wire: Record = {"messages": write_messages(map(_with_all_thinking, messages), same_dialect=True)}
    if system := write_system(instructions, same_dialect=True):
        wire["system"] = system
    write_tools(wire, chat, Target(model_name=chat.model, facts={}), same_dialect=True)
    return wire


def _with_all_thinking(message: Message) -> Message:
    """Return a message with its thinking, including thinking that another maker signed."""
    if all(map(is_signed, message.parts)):
        return message
    return replace(message, parts=[_signed(part) for part in message.parts])


def _signed(part: Part) -> Part:
    return (
        replace(part, signature=part.signature or "", format=SIGNATURE_FORMAT) if isinstance(part, Reasoning) else part
    )


def _form(form: ResponseFormat) -> Record:
    return {"type": form.kind, **({} if form.schema is None else {"schema": form.schema})}
