"""OpenAI Chat Completions, provider side: writes a canonical chat as a request body.

A request in this very format passes through byte for byte (`pass_on`) except where the gateway must act; any other is
written from the canonical form.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from apps.gateway.canonical.chat import (
    Chat,
    Effort,
    FunctionTool,
    Message,
    OpaqueTool,
    Reasoning,
    ReasoningRequest,
    Target,
    Tool,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.adapting.thinking import effort_of, field_of
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.openai.provider.adapt_request import (
    adapt_request,
    drop_dangling_fields,
    drop_search_limits,
    drop_unsupported,
    drop_unsupported_fields,
)
from apps.gateway.dialects.chat.openai.provider.write_messages import fill_reasoning, with_cache_mark, write_messages
from apps.gateway.dialects.chat.openai.wire import (
    EFFORTS,
    NAME,
    OWN_FIELDS,
    PARKED,
    Capabilities,
    capabilities_of,
    encode,
    read_entries,
    read_fields,
)
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.dialects.reading.router_fields import ROUTER_FIELDS
from apps.kernel.errors import InvalidRequest

# Tokens of thinking for an effort, where a model takes a budget; from `high` on it thinks as long as it likes.
_BUDGETS: dict[Effort, int] = {"minimal": 512, "low": 2_048, "medium": 8_192}
_PARAM = "reasoning_effort"
_FORCED = frozenset({"required", "named"})


def write_thinking(wire: Record, chat: Chat, capabilities: Capabilities, target: Target) -> None:
    """Write the reasoning switch that a chat asks for. A provider that takes `reasoning` already has it there."""
    asked = chat.reasoning
    if capabilities.forced_choice_unthinking and chat.tool_choice is not None and chat.tool_choice.mode in _FORCED:
        _write_thinking_off(wire, chat, target)
        return
    if asked is None or "reasoning" in capabilities.takes:
        return
    if asked.summary is not None and asked.effort is None and asked.max_tokens is None:
        # It says how reasoning is returned, not whether the model reasons.
        return
    if capabilities.thinking_switch == "enable_thinking":
        word = None
        _write_thinking_switch(wire, asked, capabilities)
    else:
        if asked.max_tokens is not None:
            note_dropped(chat, target, "reasoning", "this model's provider takes no number of tokens to think")
        if capabilities.thinking_switch == "thinking":
            word = _write_thinking_type(wire, chat, asked, capabilities, target)
        else:
            effort = asked.effort or (effort_of(asked.max_tokens) if asked.max_tokens is not None else None)
            word = effort and _word(effort, chat, capabilities, target)
    if word is not None:
        wire[_PARAM] = word
    else:
        wire.pop(_PARAM, None)


def _write_thinking_off(wire: Record, chat: Chat, target: Target) -> None:
    """Switch thinking off for a model that has to call a tool."""
    wire["thinking"] = {"type": "disabled"}
    wire.pop(_PARAM, None)
    asked = chat.reasoning
    if asked is not None and (asked.max_tokens is not None or asked.effort not in (None, "none")):
        note_dropped(chat, target, _PARAM, "this model does not think where it has to call a tool")


def _write_thinking_switch(wire: Record, asked: ReasoningRequest, capabilities: Capabilities) -> None:
    """Switch thinking on or off, with the tokens that it may take."""
    if asked.effort is None and asked.max_tokens is None:
        return
    wire["enable_thinking"] = asked.effort != "none" or asked.max_tokens is not None
    tokens = asked.max_tokens if asked.max_tokens is not None else _budget(asked.effort, capabilities)
    if tokens is not None:
        wire["thinking_budget"] = tokens


def _write_thinking_type(
    wire: Record, chat: Chat, asked: ReasoningRequest, capabilities: Capabilities, target: Target
) -> str | None:
    """Switch thinking on or off; return the word for how much, where the model knows any."""
    if asked.effort is None and asked.max_tokens is None:
        return None
    off = asked.effort == "none" and asked.max_tokens is None
    wire["thinking"] = {**_fields_of(wire.get("thinking")), "type": "disabled" if off else "enabled"}
    if asked.effort is None or asked.effort == "none":
        return None
    if not capabilities.reasoning_efforts:
        note_dropped(chat, target, _PARAM, "this model thinks or does not: it knows no efforts")
        return None
    return _word(asked.effort, chat, capabilities, target)


def _budget(effort: Effort | None, capabilities: Capabilities) -> int | None:
    """Return the tokens that an effort stands for, within the bounds of the model."""
    tokens = _BUDGETS.get(effort) if effort is not None else None
    bounds = capabilities.reasoning_budget
    if tokens is None or bounds is None:
        return None
    return max(min(tokens, bounds.get("max", tokens)), bounds.get("min", 1))


def _word(effort: Effort, chat: Chat, capabilities: Capabilities, target: Target) -> str | None:
    """Return the nearest effort that the model supports; None where it supports none.

    A model whose efforts are unknown gets the effort as it is, except `none` from clients of formats that send it by
    default: few models support it."""
    known = capabilities.reasoning_efforts
    if not known and effort == "none" and not capabilities.same_dialect:
        note_dropped(chat, target, _PARAM, "it is not known whether this model can do without thinking")
        return None
    if not known or effort in known:
        return effort
    words = [word for word in EFFORTS if word in known and word != "none"]
    if effort == "none" or not (words or "default" in known):
        note_dropped(chat, target, field_of(effort, chat), f"this model has no reasoning effort {effort}")
        return None
    place = EFFORTS.index(effort)
    word: str = min(words, key=lambda it: (abs(EFFORTS.index(it) - place), -EFFORTS.index(it)), default="default")
    why = f"this model has no reasoning effort {effort}: it was asked for {word}"
    note_dropped(chat, target, field_of(effort, chat), why)
    return word


def _fields_of(value: Any) -> Record:
    """Return what the client itself says of thinking, which may be its bytes."""
    if isinstance(value, msgspec.Raw):
        try:
            return dict(msgspec.json.decode(value, type=dict[str, msgspec.Raw]))
        except msgspec.MsgspecError:
            return {}
    return dict(value) if isinstance(value, dict) else {}


# Fields that mean the same and are written the same here and in the canonical language.
_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "stop",
    "seed",
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "parallel_tool_calls",
    "user",
    "metadata",
    "service_tier",
    "prompt_cache_key",
    "verbosity",
    "modalities",
    "audio",
    "prediction",
    "store",
    "effort",
    "image_config",
)
# Fields for the gateway: a provider gets only those that it takes in our form.
_OURS = OWN_FIELDS | ROUTER_FIELDS
_LIMITS = ("max_tokens", "max_completion_tokens")
_NO_PARAMETERS: Record = {"type": "object", "properties": {}}


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/chat/completions"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    capabilities = capabilities_of(chat, target)
    chat = adapt_request(drop_unsupported_fields(chat, capabilities, target), capabilities, target)
    if chat.source is not None and chat.source.dialect == NAME:
        wire = pass_on(chat.source.body, chat, capabilities)
        if chat.service_tier is not None:
            # The gateway names one where the client did not.
            wire.setdefault("service_tier", chat.service_tier)
    else:
        wire = written(chat, capabilities)
    wire["model"] = target.model_name
    if not _OURS.isdisjoint(wire):
        for name in _OURS & wire.keys():
            if name not in capabilities.takes:
                del wire[name]
    write_thinking(wire, chat, capabilities, target)
    _write_limits(wire, chat, capabilities)
    _write_stream_options(wire, chat, capabilities)
    _write_search(wire, chat, capabilities, target)
    drop_unsupported(wire, chat, capabilities, target)
    drop_dangling_fields(wire, chat, capabilities, target)
    if capabilities.seed_field != "seed" and "seed" in wire:
        wire[capabilities.seed_field] = wire.pop("seed")
    for name, value in capabilities.adds.items():
        wire.setdefault(name, value)
    return encode(wire)


def written(chat: Chat, capabilities: Capabilities) -> Record:
    """Return the fields of a chat in the format's own words, but for web searches, which each provider has otherwise.

    Raises InvalidRequest for what it has no words for.
    """
    wire: Record = {"model": chat.model, "messages": write_messages(chat.messages, capabilities)}
    for name in _SAME:
        if (value := getattr(chat, name)) is not None:
            wire[name] = value
    if chat.response_format is not None:
        form = chat.response_format
        wire["response_format"] = {"type": form.kind}
        if form.kind == "json_schema":
            wire["response_format"]["json_schema"] = _stated(
                name=form.name, description=form.description, schema=form.schema, strict=form.strict
            )
    if chat.tools is not None:
        wire["tools"] = [_tool(tool, capabilities) for tool in chat.tools if not isinstance(tool, WebSearchTool)]
    if chat.tool_choice is not None:
        wire["tool_choice"] = tool_choice_of(chat.tool_choice, _custom_names(chat))
    if chat.reasoning is not None:
        asked = chat.reasoning
        wire["reasoning"] = _stated(
            effort=asked.effort, max_tokens=asked.max_tokens, exclude=asked.exclude, summary=asked.summary
        )
    if chat.plugins is not None:
        wire["plugins"] = [{"id": plugin} for plugin in chat.plugins]
    if chat.extra and chat.dialect == NAME:
        wire |= chat.extra
    return wire


def _write_limits(wire: Record, chat: Chat, capabilities: Capabilities) -> None:
    """State the limit on the answer once, under the name that the provider knows."""
    if chat.max_tokens is None:
        return
    stated = [name for name in _LIMITS if name in wire]
    if stated == [capabilities.max_tokens_field] and _number(wire[stated[0]]) == chat.max_tokens:
        return
    for name in stated:
        del wire[name]
    wire[capabilities.max_tokens_field] = chat.max_tokens


def _number(value: Any) -> Any:
    """Return a number that may still be the client's bytes."""
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def _write_stream_options(wire: Record, chat: Chat, capabilities: Capabilities) -> None:
    """Ask for usage on every stream: the bill needs it, also when the client does not."""
    options = wire.pop("stream_options", None)
    if not chat.stream:
        return
    wire.setdefault("stream", True)
    if capabilities.stream_usage:
        stated: Record = {} if options is None else dict(read_fields(options))
        wire["stream_options"] = {**stated, "include_usage": True}


def _write_search(wire: Record, chat: Chat, capabilities: Capabilities, target: Target) -> None:
    """Ask for a web search in the provider's way. Raises InvalidRequest where it has none."""
    asked = next((tool for tool in chat.tools if isinstance(tool, WebSearchTool)), None) if chat.tools else None
    search = asked or (WebSearchTool() if chat.web_search else None)
    wire.pop("web_search", None)
    if search is not None:
        size, place = search.search_context_size, search.user_location
        if "web_search_options" in capabilities.takes:
            if place is not None and "approximate" not in place:
                inner = {name: value for name, value in place.items() if name != "type"}
                place = {"type": "approximate", "approximate": inner}
            drop_search_limits(search, chat, target, "search_context_size", "user_location")
            wire.setdefault("web_search_options", _stated(search_context_size=size, user_location=place))
        elif "web_search" in capabilities.takes:
            tool = _stated(user_location=place, search_context_size=size, max_uses=search.max_uses)
            others = wire.get("tools", [])
            if isinstance(others, msgspec.Raw):
                others = read_entries(others)
            wire["tools"] = [*others, {"type": "web_search", **tool, **_own(search, capabilities)}]
        elif asked is not None or "web_search_options" not in wire:
            raise InvalidRequest(
                "Web search is not available from this model's provider",
                code="unsupported_feature",
                param="tools" if asked else "web_search",
            )


def _tool(tool: Tool, capabilities: Capabilities) -> Record:
    """Return a tool. Raises InvalidRequest for one that only another format has words for."""
    if isinstance(tool, FunctionTool):
        own = _own(tool, capabilities)
        parameters = _NO_PARAMETERS if tool.parameters is None and capabilities.strict else tool.parameters
        function = _stated(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)
        wire = {"type": "function", "function": {**function, **own.pop("function", {})}, **own}
        return with_cache_mark(wire, tool, capabilities)
    if isinstance(tool, OpaqueTool) and tool.dialect == NAME:
        return dict(tool.data)
    raise InvalidRequest(
        "A tool is of a kind that this model's provider does not have", code="unsupported_feature", param="tools"
    )


def _own(tool: Tool, capabilities: Capabilities) -> Record:
    """Return the fields of a tool that only this format understands."""
    return dict(tool.extra) if tool.extra and capabilities.same_dialect else {}


def tool_choice_of(choice: ToolChoice, custom: Collection[str] = ()) -> str | Record:
    """Return a choice of tools as the field says it; `custom` are the names of those that take free text."""
    if choice.allowed:
        tools = [_pointed_at(name, custom) for name in choice.allowed]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}
    return _pointed_at(choice.name or "", custom) if choice.mode == "named" else choice.mode


def _pointed_at(name: str, custom: Collection[str]) -> Record:
    kind = "custom" if name in custom else "function"
    return {"type": kind, kind: {"name": name}}


def _custom_names(chat: Chat) -> list[str]:
    """Return the names of the tools that take free text."""
    own = [tool.data for tool in chat.tools or () if isinstance(tool, OpaqueTool) and tool.dialect == NAME]
    return [str(data["custom"].get("name")) for data in own if isinstance(data.get("custom"), dict)]


def _stated(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


_NULL = msgspec.Raw(b"null")
_THOUGHTS = ("reasoning", "reasoning_content")


def pass_on(body: bytes, chat: Chat, capabilities: Capabilities) -> Record:
    """Return the fields of the body that `chat` was read from, each as its bytes, without those that are null."""
    wire: Record = {name: raw for name, raw in read_fields(body).items() if raw != _NULL}
    if _may_any_change(chat, capabilities):
        entries = zip(read_entries(wire["messages"]), chat.messages, strict=True)
        wire["messages"] = [_message(raw, message, capabilities) for raw, message in entries]
    tools = chat.tools
    if tools and any(_changes(tool, capabilities) for tool in tools):
        wire["tools"] = [
            _without_mark(raw) if _changes(tool, capabilities) else raw
            for raw, tool in zip(read_entries(wire["tools"]), tools, strict=True)
            if not isinstance(tool, WebSearchTool)
        ]
    return wire


def _may_any_change(chat: Chat, capabilities: Capabilities) -> bool:
    """Return whether any message has to be looked at."""
    if not chat.is_simple_text:
        return any(_may_change(message, capabilities) for message in chat.messages)
    # Nothing is marked in it.
    roles = {message.role for message in chat.messages}
    return "assistant" in roles or ("developer" in roles and not capabilities.developer_role)


def _may_change(message: Message, capabilities: Capabilities) -> bool:
    """Return whether a message has to be looked at: an earlier answer of ours may come back with fields of ours."""
    return message.role == "assistant" or _is_renamed(message, capabilities) or _is_marked(message, capabilities)


def _is_renamed(message: Message, capabilities: Capabilities) -> bool:
    return message.role == "developer" and not capabilities.developer_role


def _is_marked(message: Message, capabilities: Capabilities) -> bool:
    """Return whether a message carries cache marks that the provider does not take."""
    if "cache_control" in capabilities.takes:
        return False
    parts = message.parts
    if len(parts) == 1:
        only = parts[0]
        if not isinstance(only, ToolResult):
            return only.cache is not None
        parts = only.parts
    return any(part.cache is not None for part in parts)


def _message(raw: msgspec.Raw, message: Message, capabilities: Capabilities) -> msgspec.Raw | Record:
    if not _may_change(message, capabilities):
        return raw
    wire: Record = {**read_fields(raw)}
    before = wire.copy()
    if message.role == "assistant":
        _adapt_answer(wire, message, capabilities)
    if _is_renamed(message, capabilities):
        wire["role"] = "system"
    if _is_marked(message, capabilities):
        wire["content"] = [_without_mark(part) for part in read_entries(wire["content"])]
    return raw if wire == before else wire


def _adapt_answer(wire: Record, message: Message, capabilities: Capabilities) -> None:
    """Leave what the provider takes of an answer that comes back: thinking under its name for it, empty or not."""
    thoughts = [name for name in _THOUGHTS if name in wire]
    if not thoughts and "reasoning_details" in wire and "reasoning_details" not in capabilities.takes:
        # Some clients keep the details alone.
        wire["reasoning"] = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        thoughts = ["reasoning"]
    if capabilities.reasoning_field == "any":
        if thoughts == ["reasoning"]:
            wire["reasoning_content"] = wire["reasoning"]
    elif thoughts and thoughts != [capabilities.reasoning_field]:
        kept = wire[capabilities.reasoning_field if capabilities.reasoning_field in thoughts else thoughts[0]]
        for name in thoughts:
            del wire[name]
        if capabilities.reasoning_field is not None:
            wire[capabilities.reasoning_field] = kept
    fill_reasoning(wire, capabilities)
    for name in ("reasoning_details", "images"):
        if name not in capabilities.takes:
            wire.pop(name, None)
    wire.pop(PARKED, None)


def _changes(tool: Tool, capabilities: Capabilities) -> bool:
    return isinstance(tool, WebSearchTool) or (tool.cache is not None and "cache_control" not in capabilities.takes)


def _without_mark(raw: msgspec.Raw) -> Record:
    return {name: value for name, value in read_fields(raw).items() if name != "cache_control"}
