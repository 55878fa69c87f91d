"""A canonical chat to the body that a provider of Anthropic's format reads.

What the client wrote in this very format passes through untouched but for the model's name; anything else is written
from the canonical form. Knows facts. Must never know a provider by name.
"""

from __future__ import annotations

import msgspec

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    OpaqueTool,
    Target,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.anthropic.messages_out import (
    Record,
    is_sealed,
    split_system,
    with_cache_mark,
    write_messages,
    write_system,
)
from apps.gateway.dialects.anthropic.thinking_out import write_thinking
from apps.gateway.dialects.anthropic.wire import NAME, VERSION, encode
from apps.kernel.errors import InvalidRequest

# What the format demands a limit for, when neither the client nor the data file states one.
_UNSTATED_LIMIT = 4_096
_WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_ANY_OBJECT: Record = {"type": "object", "properties": {}}
_JSON_PLEASE = {"type": "text", "text": "Answer with one JSON object and nothing else."}
_MODES = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}
_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/messages"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the headers that belong to the format: its version, and the previews that the client asks for. A provider
    whose data file lists `betas` takes no others."""
    allowed = target.facts.get("betas")
    betas = [beta for beta in chat.betas or () if allowed is None or beta in allowed]
    return {"anthropic-version": VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    if chat.source is not None and chat.source.dialect == NAME and _is_welcome(chat):
        wire: Record = {name: raw for name, raw in _read_fields(chat.source.body).items() if raw != _NULL}
    else:
        wire = _written(chat, target)
    wire["model"] = target.model_name
    for name in target.facts.get("unsupported", ()):
        wire.pop(name, None)
    return encode(wire)


def _is_welcome(chat: Chat) -> bool:
    """Return whether a conversation can be sent on as it is: no thinking in it that somebody else sealed."""
    return all(is_sealed(part) for message in chat.messages for part in message.parts)


def _written(chat: Chat, target: Target) -> Record:
    """Return the fields of a chat in the format's own words."""
    _refuse_unspeakable(chat)
    ours = chat.dialect == NAME
    instructions, messages = split_system(chat.messages)
    wire: Record = {
        "model": chat.model,
        "max_tokens": chat.max_tokens or target.max_output or _UNSTATED_LIMIT,
        "messages": write_messages(messages, ours=ours),
    }
    if system := write_system(instructions, ours=ours):
        wire["system"] = system
    for name, value in (
        ("temperature", chat.temperature),
        ("top_p", chat.top_p),
        ("top_k", chat.top_k),
        ("stop_sequences", _stops(chat, ours=ours)),
        ("stream", chat.stream or None),
        ("service_tier", chat.service_tier if ours else _TIERS.get(chat.service_tier or "")),
    ):
        if value is not None:
            wire[name] = value
    _write_tools(wire, chat, ours=ours)
    if chat.extra and ours:
        return wire | chat.extra
    if chat.user is not None:
        wire["metadata"] = {"user_id": chat.user}
    write_thinking(wire, chat, target)
    _write_form(wire, chat)
    return wire


def _refuse_unspeakable(chat: Chat) -> None:
    """Raise InvalidRequest for what would change the answer's very shape and has no words here."""
    for param, asked in (
        ("n", (chat.n or 1) > 1),
        ("logprobs", bool(chat.logprobs)),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
    ):
        if asked:
            raise InvalidRequest(
                f"{param} is not available from this model's provider", code="unsupported_feature", param=param
            )


def _stops(chat: Chat, *, ours: bool) -> list[str] | None:
    """Return the stop sequences; those of white space alone are refused."""
    if chat.stop is None or ours:
        return chat.stop
    return [stop for stop in chat.stop if stop.strip()] or None


def _write_tools(wire: Record, chat: Chat, *, ours: bool) -> None:
    choice = chat.tool_choice
    asked = chat.tools or []
    if chat.web_search and not any(isinstance(tool, WebSearchTool) for tool in asked):
        asked = [*asked, WebSearchTool()]
    tools = [_tool(tool, ours=ours) for tool in asked]
    if choice is not None and choice.allowed:
        tools = [tool for tool in tools if tool["name"] in choice.allowed]
    if not tools and not ours:
        tools = _tools_of_history(chat)
    if tools:
        wire["tools"] = tools
        if choice is not None or chat.parallel_tool_calls is False:
            wire["tool_choice"] = _tool_choice(choice or ToolChoice(mode="auto"), chat.parallel_tool_calls)


def _tool(tool: Tool, *, ours: bool) -> Record:
    """Return a tool. Raises InvalidRequest for one that only another format has words for."""
    if isinstance(tool, FunctionTool):
        wire: Record = {"name": tool.name}
        if tool.description is not None:
            wire["description"] = tool.description
        wire["input_schema"] = tool.parameters or _ANY_OBJECT
        if tool.strict is not None:
            wire["strict"] = tool.strict
        return with_cache_mark({**(tool.extra or {}), **wire} if ours else wire, tool)
    if isinstance(tool, WebSearchTool):
        return _search(tool, ours=ours)
    if isinstance(tool, OpaqueTool) and tool.dialect == NAME:
        return dict(tool.data)
    raise InvalidRequest(
        "A tool is of a kind that this model's provider does not have", code="unsupported_feature", param="tools"
    )


def _search(tool: WebSearchTool, *, ours: bool) -> Record:
    wire: Record = {**_WEB_SEARCH, **((tool.extra or {}) if ours else {})}
    if tool.max_uses is not None:
        wire["max_uses"] = tool.max_uses
    if tool.user_location is not None:
        wire["user_location"] = tool.user_location if ours else {"type": "approximate", **tool.user_location}
    return with_cache_mark(wire, tool)


def _tools_of_history(chat: Chat) -> list[Record]:
    """Return the tools that were called before: a conversation with calls is refused without them."""
    parts = [part for message in chat.messages for part in message.parts]
    names = dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall))
    if not names and any(isinstance(part, ToolResult) for part in parts):
        names = {"tool": None}
    return [{"name": name, "input_schema": _ANY_OBJECT} for name in names]


def _tool_choice(choice: ToolChoice, parallel: bool | None) -> Record:
    wire: Record = {"type": _MODES[choice.mode]}
    if choice.mode == "named":
        wire["name"] = choice.name
    if parallel is False and choice.mode != "none":
        wire["disable_parallel_tool_use"] = True
    return wire


def _write_form(wire: Record, chat: Chat) -> None:
    """Ask for the answer's form: a schema natively; JSON of any shape in words, as the format has no switch for it."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return
    if form.kind == "json_schema" and form.schema is not None:
        config = wire.setdefault("output_config", {})
        config["format"] = {"type": "json_schema", "schema": form.schema}
        return
    system = wire.get("system", [])
    wire["system"] = [*([{"type": "text", "text": system}] if isinstance(system, str) else system), _JSON_PLEASE]
