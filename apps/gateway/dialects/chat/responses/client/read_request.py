"""OpenAI Responses, client side: reads a request body into a canonical chat, and writes the request for the log.

Refusals name the field. Fields that the canonical model lacks are kept for providers of this format, unknown fields
included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    OpaqueTool,
    ReasoningRequest,
    ResponseFormat,
    Source,
    Target,
    Text,
    Tool,
    ToolChoice,
    WebSearchTool,
)
from apps.gateway.dialects.chat.openai.wire import EFFORTS, SUMMARIES
from apps.gateway.dialects.chat.responses.client import Asked, keep_asked
from apps.gateway.dialects.chat.responses.client.read_items import read_input
from apps.gateway.dialects.chat.responses.provider.write_items import write_input, write_instructions
from apps.gateway.dialects.chat.responses.provider.write_request import write_tools
from apps.gateway.dialects.chat.responses.wire import ENCRYPTED_REASONING, INSTRUCTIONS, LOGPROBS, NAME, Capabilities
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

# Far beyond any model's.
MAX_TOOLS: Final = 1_000
SEARCH: Final = "web_search"
_SEARCHES: Final = (SEARCH, "web_search_preview")
# Tools that a provider runs, or that a model was trained to call, by type.
_NATIVE: Final = (
    *("file_search", "code_interpreter", "image_generation", "mcp", "local_shell", "shell", "apply_patch"),
    *("computer", "computer_use_preview", "tool_search", "programmatic_tool_calling", "x_search"),
)
_KNOWN: Final = ("function", "custom", "namespace", *_SEARCHES, *_NATIVE)
_FUNCTION_FIELDS: Final = frozenset({"type", "name", "description", "parameters", "strict"})
_SEARCH_FIELDS: Final = frozenset({"user_location", "search_context_size"})


def _tool(value: Any) -> Tool:
    wire = record(value)
    kind: str = required(wire, "type", filled_string)
    if kind == "function":
        return _function(wire)
    if kind.startswith(_SEARCHES):
        return _web_search(wire)
    if kind == "custom":
        _check_custom(wire)
    elif kind == "namespace":
        required(wire, "name", filled_string)
        required(wire, "tools", list_of(_check_inner, MAX_TOOLS))
    elif kind not in _NATIVE:
        raise Malformed(f"{kind[:100]} is not a type of tool: must be one of {', '.join(_KNOWN)}", "type")
    return OpaqueTool(dialect=NAME, data=wire)


def _function(wire: Record) -> FunctionTool:
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=optional(wire, "parameters", record),
        strict=optional(wire, "strict", boolean),
        extra=fields.rest_of(wire, _FUNCTION_FIELDS),
    )


def _web_search(wire: Record) -> WebSearchTool:
    """Read a web search; its type and what else only OpenAI's knows come back as they are."""
    return WebSearchTool(
        user_location=optional(wire, "user_location", record),
        search_context_size=optional(wire, "search_context_size", one_of("low", "medium", "high")),
        extra=fields.rest_of(wire, _SEARCH_FIELDS),
    )


def _check_custom(wire: Record) -> None:
    required(wire, "name", filled_string)
    optional(wire, "description", string)
    form = optional(wire, "format", record)
    if (
        form is not None
        and fields.within("format", lambda it: required(it, "type", _grammar_format), form) == "grammar"
    ):
        fields.within("format", _check_grammar, form)


def _check_grammar(form: Record) -> None:
    for name in ("definition", "syntax"):
        required(form, name, filled_string)


def _check_inner(value: Any) -> None:
    """Check a tool of a namespace."""
    wire = record(value)
    if required(wire, "type", one_of("function", "custom")) == "custom":
        _check_custom(wire)
    else:
        _function(wire)


def read_tool_choice(value: Any) -> ToolChoice:
    """Read `tool_choice`: a word, a tool by its name or its type, or the tools that are allowed."""
    if isinstance(value, str):
        return ToolChoice(mode=_word(value))
    wire = record(value)
    kind = required(wire, "type", filled_string)
    if kind == "allowed_tools":
        mode = required(wire, "mode", one_of("auto", "required"))
        return ToolChoice(mode=mode, allowed=tuple(required(wire, "tools", _names)))
    tool = optional(wire, "name", filled_string) if kind == "mcp" else None
    return ToolChoice(mode="named", name=_chosen(wire), server_tool=tool)


def _chosen(value: Any) -> str:
    """Return the name that a tool is chosen by: its own, a server's of an MCP, else its type."""
    wire = record(value)
    kind: str = required(wire, "type", filled_string)
    if kind in ("function", "custom", "namespace"):
        return str(required(wire, "name", filled_string))
    if kind == "mcp":
        return str(required(wire, "server_label", filled_string))
    if kind.startswith(_SEARCHES):
        return SEARCH
    if kind not in _NATIVE:
        raise Malformed(f"must be one of allowed_tools, {', '.join(_KNOWN)}", "type")
    return kind


_word = one_of("auto", "none", "required")
_grammar_format = one_of("text", "grammar")
_names = list_of(_chosen, MAX_TOOLS)
read_tools = list_of(_tool, MAX_TOOLS)


MAX_LISTED: Final = 100
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MAX_TOKENS: Final = 1_000_000_000
# Text that models read; it may be as long as a body.
_CONVERSATION: Final = frozenset({"input", "instructions", "tools", "text"})
# Fields that ask for a stored response; the store of responses has removed them.
_STORED: Final = ("previous_response_id", "conversation", "background", "prompt")
# Fields for the gateway, or without effect on the answer: where a client comes from.
_SILENT: Final[dict[str, Reader[Any]]] = {
    "store": boolean,
    "stream_options": record,
    "client_metadata": record,
    "background": boolean,
}
# Values of `include` that are always included, or requested in another way.
_INCLUDED: Final = frozenset({ENCRYPTED_REASONING, LOGPROBS})


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest (`invalid_json`, `invalid_parameters`)."""
    return read_wire(fields.read_json(body), body)


def read_prompt(body: bytes) -> Chat:
    """Return the chat of a request that only asks how long it is."""
    return read_request(body)


def read_wire(wire: Record, body: bytes, asked: Asked | None = None) -> Chat:
    """Return the chat of a body that was parsed already, as `read_request`; `asked` says for whom it is."""
    asked = asked or Asked()
    known: dict[str, Any] = {}
    extra: Record = {}
    try:
        fields.check_beside(wire, body, _CONVERSATION)
        _check_stored(wire)
        for name, value in wire.items():
            if value is None:
                continue
            if name == "input":
                known["messages"] = fields.within(name, lambda it: read_input(it, asked.cipher), value)
            elif read := _FIELDS.get(name):
                known[name] = fields.within(name, read, value)
            elif name in _SILENT:
                fields.within(name, _SILENT[name], value)
            else:
                extra[name] = value
        chat = _chat_of(known, extra, wire)
    except Malformed as refusal:
        raise refusal.as_error() from None
    chat.source = Source(dialect=NAME, body=body)
    given = asked.fields or {name: value for name, value in wire.items() if name not in ("input", "stream")}
    return keep_asked(chat, Asked(fields=given, cipher=asked.cipher, response_id=asked.response_id, echo=asked.echo))


def _check_stored(wire: Record) -> None:
    for name in _STORED:
        value = wire.get(name)
        if value is not None and not (name == "background" and value is False):
            raise Malformed("responses are not stored here: send all items in input", name)


def _chat_of(known: dict[str, Any], extra: Record, wire: Record) -> Chat:
    """Put the fields together. Fields that say more than the canonical language has words for are kept beside it."""
    for name in ("model", "messages"):
        if name not in known:
            raise Malformed("Required", "input" if name == "messages" else name)
    if (instructions := known.pop("instructions", None)) is not None:
        instruction = Message(role="system", parts=[Text(text=instructions)], extra={INSTRUCTIONS: True})
        known["messages"] = [instruction, *known["messages"]]
    if "max_output_tokens" in known:
        known["max_tokens"] = known.pop("max_output_tokens")
    include = known.pop("include", ())
    if LOGPROBS in include or known.get("top_logprobs"):
        known["logprobs"] = True
    if included := [word for word in include if word not in _INCLUDED]:
        extra["include"] = included
    if "reasoning" in known and (more := fields.rest_of(wire["reasoning"], frozenset({"effort", "summary"}))):
        extra["reasoning"] = more
    known |= known.pop("text", {})
    if "text" in wire and wire["text"] and (rest := fields.rest_of(wire["text"], frozenset({"format", "verbosity"}))):
        extra["text"] = rest
    if known.pop("truncation", "disabled") != "disabled":
        extra["truncation"] = wire["truncation"]
    if known.get("parallel_tool_calls") is True:
        # That is what happens anyway: agents say it to every model.
        del known["parallel_tool_calls"]
    known["tools"] = known.get("tools") or None
    return Chat(**known, extra=extra or None, dialect=NAME)


def _reasoning(value: Any) -> ReasoningRequest | None:
    wire = record(value)
    effort, summary = optional(wire, "effort", _effort), optional(wire, "summary", _summary)
    former = optional(wire, "generate_summary", _summary)
    return None if effort is summary is former is None else ReasoningRequest(effort=effort, summary=summary)


def _text(value: Any) -> dict[str, Any]:
    wire = record(value)
    meanings = {
        "response_format": optional(wire, "format", _format),
        "verbosity": optional(wire, "verbosity", string),
    }
    return {name: meaning for name, meaning in meanings.items() if meaning is not None}


def _format(value: Any) -> ResponseFormat:
    wire = record(value)
    kind = required(wire, "type", one_of("text", "json_object", "json_schema"))
    if kind != "json_schema":
        return ResponseFormat(kind=kind)
    return ResponseFormat(
        kind=kind,
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        schema=required(wire, "schema", record),
        strict=optional(wire, "strict", boolean),
    )


def _kept(read: Reader[Any]) -> Callable[[Any], Any]:
    """Return the reader of a field that is checked here and kept as it is."""

    def check(value: Any) -> Any:
        read(value)
        return value

    return check


_effort = one_of(*EFFORTS)
_summary = one_of(*SUMMARIES)

_FIELDS: dict[str, Reader[Any]] = {
    "model": bounded_name,
    "instructions": string,
    "stream": boolean,
    "max_output_tokens": integer(1, MAX_TOKENS),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_logprobs": integer(0, 20),
    "include": list_of(string, MAX_LISTED),
    "reasoning": _reasoning,
    "text": _text,
    "tools": read_tools,
    "tool_choice": read_tool_choice,
    "parallel_tool_calls": boolean,
    "truncation": one_of("auto", "disabled"),
    "user": string,
    "metadata": record,
    "service_tier": string,
    "prompt_cache_key": string,
}


_NULL: Final = msgspec.Raw(b"null")
_OUTPUTS: Final = "_output"
# As clients write: with everything of theirs.
_CLIENTS: Final = Capabilities(developer_role=True, takes=frozenset({"phase", "prompt_cache_breakpoint"}))
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read = msgspec.json.decode


def logged_request(chat: Chat) -> Record:
    """Return those of `messages` (the input's items), `tools`, `tool_choice` and `response_format` that are set.

    The instructions, which this format has beside the input, are the first message. Raises InvalidRequest for what the
    format cannot express, which never happens to a chat that was read from it.
    """
    if chat.source is not None and chat.source.dialect == NAME:
        wire: Record = {name: _read(raw) for name, raw in _read_fields(chat.source.body).items() if raw != _NULL}
    else:
        wire = _written(chat)
    logged: Record = {"messages": _items(wire)}
    logged |= {name: wire[name] for name in ("tools", "tool_choice") if name in wire}
    text = wire.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return logged if form is None else {**logged, "response_format": form}


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as the field `tool_choice`: names, and nothing that a client could hide in it."""
    if choice.allowed:
        tools = [{"type": "function", "name": name} for name in choice.allowed]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    return {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: items of theirs."""
    return [item for item in messages if str(item.get("type")).endswith(_OUTPUTS)]


def _items(wire: Record) -> list[Any]:
    given = wire.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    instructions = wire.get(INSTRUCTIONS)
    return items if instructions is None else [{"role": "system", "content": instructions}, *items]


def _written(chat: Chat) -> Record:
    target = Target(model_name=chat.model, facts={})
    wire: Record = {
        **write_instructions(chat),
        "input": write_input(chat, _CLIENTS, target),
        **write_tools(chat, _CLIENTS, target),
    }
    form = chat.response_format
    if form is None:
        return wire
    return {**wire, "text": {"format": {"type": form.kind, **({} if form.schema is None else {"schema": form.schema})}}}
