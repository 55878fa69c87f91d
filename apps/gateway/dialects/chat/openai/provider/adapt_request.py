"""OpenAI Chat Completions, provider side: adapts a chat to a provider's capabilities before it is written or passed on:
tool call ids, foreign signatures, names, fields of other formats."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    Part,
    Reasoning,
    ReasoningRequest,
    Target,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.adapting.emulated_tools import adapt_tool_names
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, emulate_structured_output, object_root
from apps.gateway.dialects.adapting.stop_sequences import emulate_stop_sequences, fit_stop_sequences
from apps.gateway.dialects.adapting.thinking import SIGNATURE_FIELD, split_signature, state_signature
from apps.gateway.dialects.adapting.unsupported_fields import (
    is_default_value,
    note_dropped,
    note_generated_images,
    note_unsupported_fields,
    repair_tool_results,
    shorten_user,
    unsupported_feature,
)
from apps.gateway.dialects.chat.openai.provider.write_messages import adapt_call_ids
from apps.gateway.dialects.chat.openai.wire import NAME, Capabilities
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest

# The limit of OpenAI and compatible providers.
_MAX_STOPS = 4
_NAMES, _MAX_NAME_LENGTH = re.compile(r"[a-zA-Z0-9_-]+"), 64
_SEARCH_BY_ITSELF: Final = "whether the web is searched cannot be chosen at this model's provider"
# Fields without which the client would get something else than what it asks for.
_NEEDED = frozenset({"n", "logprobs", "top_logprobs", "modalities", "audio", "tools", "response_format"})


def drop_unsupported_fields(chat: Chat, capabilities: Capabilities, target: Target) -> Chat:
    """Return the chat as a provider of this format accepts it; the same object where nothing has to change."""
    is_plain = chat.is_plain
    if not is_plain:
        chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=False)
    marks = "cache_control" in capabilities.takes
    note_unsupported_fields(
        chat, target, NAME, marks=marks, names=True, details=True, thinking=_thinking_filter(capabilities)
    )
    if "images" not in capabilities.takes:
        note_generated_images(chat, target)
    if chat.dialect != NAME:
        chat = shorten_user(chat, target)
        if not is_plain:
            chat = adapt_tool_names(_with_objects(chat), target, _NAMES, _MAX_NAME_LENGTH)
        if "stop" not in capabilities.unsupported and chat.stop is not None:
            chat = replace(chat, stop=fit_stop_sequences(chat, target, _MAX_STOPS))
    chat = _with_effort(chat, capabilities, target)
    return chat if is_plain else emulate_structured_output(chat, target)


def drop_unsupported(wire: Record, chat: Chat, capabilities: Capabilities, target: Target) -> None:
    """Leave out the fields that the provider refuses. Raises InvalidRequest for what the client would miss."""
    for name in capabilities.unsupported:
        if wire.pop(name, None) is None:
            continue
        value = getattr(chat, name, wire)
        if is_default_value(name, value):
            continue
        if name == "stop":
            emulate_stop_sequences(chat, target)
            continue
        if name in _NEEDED or (name == "tool_choice" and chat.tool_choice and chat.tool_choice.mode != "auto"):
            raise unsupported_feature(chat, name, f"{name} is not available from this model's provider")
        if name != "tool_choice":
            note_dropped(chat, target, name, "not available from this model's provider")
    alone = target.facts.get("temperature") is False
    if alone and wire.pop("temperature", None) is not None and chat.temperature != 1:
        note_dropped(chat, target, "temperature", "the model chooses its words alone")
    if chat.image_config is not None and "image_config" not in capabilities.takes:
        note_dropped(chat, target, "image_config", "not available from this model's provider")


def drop_dangling_fields(wire: Record, chat: Chat, capabilities: Capabilities, target: Target) -> None:
    """Leave out the fields that providers refuse without another one: a choice among no tools, the likeliest words of
    an answer without its probabilities.

    A client that demands a call of a tool and states no tools keeps its choice: the provider says what is wrong.
    """
    choice = chat.tool_choice
    tools = wire.get("tools")
    if not tools or (isinstance(tools, msgspec.Raw) and not chat.tools):
        for name in ("tools", "parallel_tool_calls"):
            wire.pop(name, None)
        if chat.tools or choice is None or choice.mode in ("auto", "none"):
            wire.pop("tool_choice", None)
            if choice is not None and choice.mode in ("required", "named"):
                note_dropped(chat, target, "tool_choice", _SEARCH_BY_ITSELF)
    elif choice is not None and choice.mode == "named" and _is_moved_search(choice, chat, capabilities):
        wire.pop("tool_choice", None)
        note_dropped(chat, target, "tool_choice", _SEARCH_BY_ITSELF)
    if chat.top_logprobs is not None and not chat.logprobs and wire.pop("top_logprobs", None) and chat.top_logprobs:
        note_dropped(chat, target, "top_logprobs", "the answer's probabilities were not asked for")


def _is_moved_search(choice: ToolChoice, chat: Chat, capabilities: Capabilities) -> bool:
    """Return whether a choice names the web search, which this provider does not have among its tools."""
    if "web_search" in capabilities.takes and "web_search_options" not in capabilities.takes:
        return False
    tools = chat.tools or ()
    named = any(isinstance(tool, FunctionTool) and tool.name == choice.name for tool in tools)
    return not named and choice.name == "web_search" and any(isinstance(tool, WebSearchTool) for tool in tools)


def _thinking_filter(capabilities: Capabilities) -> Any:
    def is_accepted(block: Reasoning) -> bool:
        if "reasoning_details" in capabilities.takes:
            return True
        return capabilities.reasoning_field is not None and bool(block.text or block.data is None)

    return is_accepted


def _with_objects(chat: Chat) -> Chat:
    """Return the chat with tools whose parameters are objects. Raises InvalidRequest for any other kind."""
    if all(_is_object(tool) for tool in chat.tools or ()):
        return chat
    tools = list(chat.tools or ())
    for at, tool in enumerate(tools):
        if isinstance(tool, FunctionTool) and not _is_object(tool):
            try:
                tools[at] = replace(tool, parameters=object_root(tool.parameters))
            except UnsupportedSchema:
                raise unsupported_feature(
                    chat, f"tools[{at}]", "A function's parameters must be an object for this model's provider"
                ) from None
    return replace(chat, tools=tools, source=None)


def _is_object(tool: Any) -> bool:
    return not isinstance(tool, FunctionTool) or bool(tool.parameters and tool.parameters.get("type") == "object")


def _with_effort(chat: Chat, capabilities: Capabilities, target: Target) -> Chat:
    """Return the chat whose `effort` is one of thinking, for models that know efforts and have no such option."""
    if chat.effort is None or "effort" in capabilities.takes:
        return chat
    asked = chat.reasoning or ReasoningRequest()
    if asked.effort is None and asked.max_tokens is None and capabilities.reasoning_efforts:
        return replace(chat, reasoning=replace(asked, effort=chat.effort))
    note_dropped(chat, target, "effort", "not available from this model's provider")
    return chat


def drop_search_limits(search: WebSearchTool, chat: Chat, target: Target, *taken: str) -> None:
    """Note what of a web search's limits a provider's search does not take."""
    at = next((at for at, tool in enumerate(chat.tools or ()) if tool is search), 0)
    for name in ("user_location", "search_context_size", "max_uses"):
        if name not in taken and getattr(search, name) is not None:
            target.note_dropped(f"tools[{at}].{name}", "the provider's web search does not take it")


def adapt_request(chat: Chat, capabilities: Capabilities, target: Target) -> Chat:
    """Return the chat as this provider takes it; the very same where nothing has to change, so that it passes on."""
    messages = _adapt_messages(chat, capabilities, target)
    if messages is not None:
        chat = replace(chat, messages=messages, source=None)
    choice = chat.tool_choice
    if choice is not None and choice.mode not in capabilities.tool_choices:
        chat = _without_choice(chat)
    if capabilities.must_rewrite or (capabilities.prefill_field is not None and chat.messages[-1].role == "assistant"):
        chat = replace(chat, source=None)
    return _without_strange_fields(chat, capabilities, target) if capabilities.strict else chat


def _adapt_messages(chat: Chat, capabilities: Capabilities, target: Target) -> list[Message] | None:
    """Return the messages, or None where none of them changes: what some providers take in their own way only are
    calls, their results, and names."""
    messages = chat.messages
    if chat.kinds.isdisjoint((ToolCall, ToolResult)) and (
        capabilities.message_names or all(message.name is None for message in messages)
    ):
        return None
    ids = adapt_call_ids(messages, capabilities.tool_call_ids)
    fit = [_adapt_message(message, number, ids, capabilities, target) for number, message in enumerate(messages)]
    return fit if any(new is not old for new, old in zip(fit, messages, strict=True)) else None


def _adapt_message(
    message: Message, number: int, ids: dict[str, str], capabilities: Capabilities, target: Target
) -> Message:
    if message.name is not None and not capabilities.message_names:
        target.note_dropped(f"messages[{number}].name", "messages have no names at this model's provider")
        message = replace(message, name=None)
    parts = [_adapt_part(part, ids, capabilities) for part in message.parts]
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts)


def _adapt_part(part: Part, ids: dict[str, str], capabilities: Capabilities) -> Part:
    if isinstance(part, ToolCall):
        extra = part.extra or {}
        if part.id in ids or (SIGNATURE_FIELD in extra and SIGNATURE_FIELD not in capabilities.takes):
            kept = {
                name: value for name, value in extra.items() if name != SIGNATURE_FIELD or name in capabilities.takes
            }
            if SIGNATURE_FIELD in capabilities.takes and (signature := split_signature(part.id)[1]) is not None:
                kept = state_signature(signature) | kept
            return replace(part, id=ids.get(part.id, part.id), extra=kept or None)
    elif isinstance(part, ToolResult) and part.call_id in ids:
        return replace(part, call_id=ids[part.call_id])
    return part


def _without_choice(chat: Chat) -> Chat:
    """Return a chat without its choice among tools: without tools, where none may be called.

    Raises InvalidRequest where one must be called.
    """
    if chat.tool_choice is not None and chat.tool_choice.mode in ("required", "named"):
        raise InvalidRequest(
            "This model cannot be made to call a tool", code="unsupported_feature", param="tool_choice"
        )
    return replace(chat, tool_choice=None, tools=None, source=None)


def _without_strange_fields(chat: Chat, capabilities: Capabilities, target: Target) -> Chat:
    """Leave out the fields of a client's that a provider without tolerance would refuse the whole request for."""
    extra = chat.extra or {}
    for name in extra.keys() - capabilities.takes:
        target.note_dropped(name, f"{name} has no counterpart at this model's provider")
    kept = {name: value for name, value in extra.items() if name in capabilities.takes}
    choice = chat.tool_choice
    if choice is None or not choice.allowed:
        return replace(chat, extra=kept or None)
    # Fewer tools say the same as a choice among some of them.
    tools = [tool for tool in chat.tools or () if isinstance(tool, FunctionTool) and tool.name in choice.allowed]
    return replace(chat, extra=kept or None, tools=tools or None, tool_choice=replace(choice, allowed=()))
