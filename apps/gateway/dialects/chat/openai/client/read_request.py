"""OpenAI Chat Completions, client side: reads a request body into a canonical chat, and writes the request for the log.

Refusals name the field. Messages are read in `read_messages.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    OpaqueTool,
    ReasoningRequest,
    ResponseFormat,
    Source,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.chat.openai.client.read_messages import cache_mark, pair_unnamed_calls, read_messages
from apps.gateway.dialects.chat.openai.provider.write_messages import with_cache_mark
from apps.gateway.dialects.chat.openai.provider.write_request import tool_choice_of, written
from apps.gateway.dialects.chat.openai.wire import EFFORTS, NAME, SUMMARIES, Capabilities, read_fields
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

_CALLS = frozenset({ToolCall, ToolResult})
# Far beyond any model's.
MAX_TOOLS = 1_000
# A mark in `extra` of a tool that was read from `functions`: its client expects a `function_call` in the answer.
_LEGACY = {"type": "function"}

# Kinds of tools that only some providers of this format have, those named `provider:tool` besides: they travel as they
# are.
_OWN_TOOLS = frozenset(
    {
        "custom",
        "browser_search",
        "builtin_function",
        "code_execution",
        "code_interpreter",
        "file_search",
        "image_generation",
        "mcp",
        "retrieval",
        "web_search_preview",
        "x_search",
    }
)
_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "strict"})
_TOOL_FIELDS = frozenset({"type", "function", "cache_control"})
_SEARCH_FIELDS = frozenset({"type", "user_location", "search_context_size", "max_uses", "cache_control"})


def is_legacy(chat: Chat) -> bool:
    """Return whether the client uses `functions`, which tools replaced."""
    return bool(chat.tools) and chat.dialect == NAME and any(tool.extra == _LEGACY for tool in chat.tools or ())


def _tool(value: Any) -> Tool:
    wire = record(value)
    kind = wire.get("type")
    if kind == "function" or (kind is None and "function" in wire):
        tool = required(wire, "function", _function)
        tool.cache = cache_mark(wire)
        if extra := fields.rest_of(wire, _TOOL_FIELDS):
            tool.extra = {**extra, **(tool.extra or {})}
        return tool
    if kind == "web_search":
        return WebSearchTool(
            user_location=optional(wire, "user_location", record),
            search_context_size=optional(wire, "search_context_size", one_of("low", "medium", "high")),
            max_uses=optional(wire, "max_uses", integer(1)),
            cache=cache_mark(wire),
            extra=fields.rest_of(wire, _SEARCH_FIELDS),
        )
    own = required(wire, "type", filled_string)
    if own not in _OWN_TOOLS and ":" not in own:
        raise Malformed("must be one of function, custom, web_search", "type")
    return OpaqueTool(dialect=NAME, data=wire)


def _function(value: Any) -> FunctionTool:
    wire = record(value)
    unknown = fields.rest_of(wire, _FUNCTION_FIELDS)
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=optional(wire, "parameters", record),
        strict=optional(wire, "strict", boolean),
        extra=None if unknown is None else {"function": unknown},
    )


def _legacy_function(value: Any) -> FunctionTool:
    tool = _function(value)
    tool.extra = _LEGACY
    return tool


def read_tool_choice(value: Any) -> ToolChoice:
    """Read `tool_choice`."""
    if isinstance(value, str):
        return ToolChoice(mode=_choice_word(value))
    wire = record(value)
    kind = wire.get("type", "function")
    if kind == "allowed_tools":
        return required(wire, "allowed_tools", _allowed_tools)
    if kind in ("function", "custom"):
        return ToolChoice(mode="named", name=required(wire, kind, _name))
    raise Malformed("must be one of function, custom, allowed_tools", "type")


def _allowed_tools(value: Any) -> ToolChoice:
    wire = record(value)
    mode = required(wire, "mode", one_of("auto", "required"))
    return ToolChoice(mode=mode, allowed=tuple(required(wire, "tools", _allowed_names)))


def _allowed_name(value: Any) -> str:
    wire = record(value)
    kind = required(wire, "type", filled_string)
    return required(wire, kind, _name) if kind in ("function", "custom") else kind


def _name(value: Any) -> str:
    return required(record(value), "name", filled_string)


def read_function_choice(value: Any) -> ToolChoice:
    """Read `function_call`, which `tool_choice` replaced."""
    if isinstance(value, str):
        return ToolChoice(mode=one_of("auto", "none")(value))
    return ToolChoice(mode="named", name=_name(value))


_choice_word = one_of("auto", "none", "required")
_allowed_names = list_of(_allowed_name, MAX_TOOLS)
read_tools = list_of(_tool, MAX_TOOLS)
read_functions = list_of(_legacy_function, MAX_TOOLS)


MAX_STOPS, MAX_LISTED = 4, 100
# Text that models read; it may be as long as a body.
_CONVERSATION = frozenset({"messages", "tools", "functions", "response_format", "prediction", "logit_bias"})
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MAX_TOKENS = 1_000_000_000


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest (`invalid_json`, `invalid_parameters`)."""
    wire = fields.read_json(body)
    try:
        fields.check_beside(wire, body, _CONVERSATION)
        known, extra = fields.read_known(wire, FIELDS)
        if extra:
            take_router_fields(extra, known)
        return _chat_of(known, extra, body)
    except Malformed as refusal:
        raise refusal.as_error() from None


def _chat_of(known: dict[str, Any], extra: Record, body: bytes) -> Chat:
    """Put the fields together. Raises Malformed for missing and contradictory fields.

    A request with `functions` has no source: it is sent on with `tools`.
    """
    for name in ("model", "messages"):
        if name not in known:
            raise Malformed("Required", name)
    if "top_logprobs" in known and not known.get("logprobs"):
        raise Malformed("needs logprobs to be true", "top_logprobs")
    _settle_max_tokens(known)
    _settle_reasoning(known)
    _settle_functions(known)
    if "web_search_options" in extra:
        # OpenAI's own values of the switch pass on as they are; other formats get the canonical switch.
        known["web_search"] = True
    known["include_usage"] = known.pop("stream_options", None)
    chat = Chat(**known, extra=extra or None, dialect=NAME)
    had_unnamed_calls = not chat.kinds.isdisjoint(_CALLS) and pair_unnamed_calls(chat.messages)
    if not had_unnamed_calls and not is_legacy(chat):
        chat.source = Source(dialect=NAME, body=body)
    return chat


def _settle_max_tokens(known: dict[str, Any]) -> None:
    """Two names, one meaning; both may be given when they agree."""
    modern = known.pop("max_completion_tokens", None)
    if modern is not None and known.setdefault("max_tokens", modern) != modern:
        raise Malformed("contradicts max_completion_tokens", "max_tokens")


def _settle_reasoning(known: dict[str, Any]) -> None:
    effort = known.pop("reasoning_effort", None)
    if effort is None:
        return
    asked: ReasoningRequest = known.get("reasoning") or ReasoningRequest()
    if asked.effort not in (None, effort):
        raise Malformed("contradicts reasoning.effort", "reasoning_effort")
    known["reasoning"] = replace(asked, effort=effort)


def _settle_functions(known: dict[str, Any]) -> None:
    """Take `functions` and `function_call`, which tools replaced, for tools; and no tools for none stated."""
    functions, choice = known.pop("functions", None), known.pop("function_call", None)
    if functions is not None and "tools" not in known:
        known["tools"] = functions
        if choice is not None:
            known.setdefault("tool_choice", choice)
    known["tools"] = known.get("tools") or None


def _stop(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else _stops(value)


def _include_usage(value: Any) -> bool | None:
    return optional(record(value), "include_usage", boolean)


def _logit_bias(value: Any) -> dict[str, float]:
    return {token: fields.within(token, _bias, bias) for token, bias in record(value).items()}


def _reasoning(value: Any) -> ReasoningRequest:
    wire = record(value)
    effort = optional(wire, "effort", _effort)
    if optional(wire, "enabled", boolean) is False:
        if effort not in (None, "none"):
            raise Malformed("contradicts effort", "enabled")
        effort = "none"
    return ReasoningRequest(
        effort=effort,
        max_tokens=optional(wire, "max_tokens", integer(1, MAX_TOKENS)),
        exclude=optional(wire, "exclude", boolean),
        summary=optional(wire, "summary", one_of(*SUMMARIES)),
    )


def _image_config(value: Any) -> Record:
    wire = record(value)
    for name in ("aspect_ratio", "image_size", "image_quality"):
        optional(wire, name, string)
    optional(wire, "n", integer(1))
    optional(wire, "seed", integer())
    return wire


def _response_format(value: Any) -> ResponseFormat:
    wire = record(value)
    kind = required(wire, "type", one_of("text", "json_object", "json_schema"))
    return required(wire, "json_schema", _json_schema) if kind == "json_schema" else ResponseFormat(kind=kind)


def _json_schema(value: Any) -> ResponseFormat:
    wire = record(value)
    return ResponseFormat(
        kind="json_schema",
        name=optional(wire, "name", string),
        description=optional(wire, "description", string),
        schema=optional(wire, "schema", record),
        strict=optional(wire, "strict", boolean),
    )


_stops = list_of(string, MAX_STOPS)
_bias = number(-100, 100)
_effort = one_of(*EFFORTS)

FIELDS: dict[str, Reader[Any]] = {
    "model": bounded_name,
    "messages": read_messages,
    "stream": boolean,
    "stream_options": _include_usage,
    "max_tokens": integer(1, MAX_TOKENS),
    "max_completion_tokens": integer(1, MAX_TOKENS),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_k": integer(-1, MAX_TOKENS),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "stop": _stop,
    "seed": integer(-(2**63), 2**63 - 1),
    "n": integer(1, 128),
    "logprobs": boolean,
    "top_logprobs": integer(0, 20),
    "logit_bias": _logit_bias,
    "response_format": _response_format,
    "tools": read_tools,
    "tool_choice": read_tool_choice,
    "parallel_tool_calls": boolean,
    "functions": read_functions,
    "function_call": read_function_choice,
    "reasoning": _reasoning,
    "reasoning_effort": _effort,
    "effort": one_of("low", "medium", "high"),
    "web_search": boolean,
    "free_models_only": boolean,
    "no_reasoning": boolean,
    "image_config": _image_config,
    "user": string,
    "metadata": record,
    "service_tier": string,
    "prompt_cache_key": string,
    "verbosity": string,
    "modalities": list_of(string, MAX_LISTED),
    "audio": record,
    "prediction": record,
    "store": boolean,
}


_FIELDS = ("messages", "tools", "tool_choice", "response_format")
_NULL = msgspec.Raw(b"null")
# As clients write: with everything of theirs and of ours.
_CLIENTS = Capabilities(
    developer_role=True,
    reasoning_field="reasoning",
    tool_call_ids="any",
    takes=frozenset({"reasoning_details", "images", "cache_control"}),
    same_dialect=True,
)


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    Raises InvalidRequest for what the format cannot express, which never happens to a chat that was read from it.
    """
    if chat.source is not None and chat.source.dialect == NAME:
        wire: Record = {name: raw for name, raw in read_fields(chat.source.body).items() if raw != _NULL}
    else:
        wire = written(chat, _CLIENTS)
        searches = [tool for tool in chat.tools or () if isinstance(tool, WebSearchTool)]
        if searches:
            wire["tools"] = [*wire["tools"], *map(_search, searches)]
    return {name: wire[name] for name in _FIELDS if name in wire}


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as the field `tool_choice`: names, and nothing that a client could hide in it."""
    return tool_choice_of(choice)


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: messages of theirs."""
    return [message for message in messages if message.get("role") in ("tool", "function")]


def _search(tool: WebSearchTool) -> Record:
    limits = {name: getattr(tool, name) for name in ("user_location", "search_context_size", "max_uses")}
    stated = {name: value for name, value in limits.items() if value is not None}
    return with_cache_mark({"type": "web_search", **stated, **(tool.extra or {})}, tool, _CLIENTS)
