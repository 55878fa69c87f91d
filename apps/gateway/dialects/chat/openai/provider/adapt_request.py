"""OpenAI Chat Completions, provider side: adapts a chat to a provider's flavor before it is written or passed on: tool
call ids, foreign signatures, names, fields of other formats.

Knows facts. Must never know a provider by name.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, Part, Target, ToolCall, ToolResult
from apps.gateway.dialects.adapting.signed_call_ids import FIELD as SIGNATURE_FIELD
from apps.gateway.dialects.adapting.signed_call_ids import split_signature, state_signature
from apps.gateway.dialects.chat.openai.provider.call_ids import adapt_call_ids
from apps.gateway.dialects.chat.openai.provider.flavor import Flavor
from apps.kernel.errors import InvalidRequest

Record = dict[str, Any]


def adapt_request(chat: Chat, flavor: Flavor, target: Target) -> Chat:
    """Return the chat as this provider takes it; the very same where nothing has to change, so that it passes on."""
    messages = _adapt_messages(chat, flavor, target)
    if messages is not None:
        chat = replace(chat, messages=messages, source=None)
    choice = chat.tool_choice
    if choice is not None and choice.mode not in flavor.tool_choices:
        chat = _without_choice(chat)
    if flavor.must_rewrite or (flavor.prefill_field is not None and chat.messages[-1].role == "assistant"):
        chat = replace(chat, source=None)
    return _without_strange_fields(chat, flavor, target) if flavor.strict else chat


def _adapt_messages(chat: Chat, flavor: Flavor, target: Target) -> list[Message] | None:
    """Return the messages, or None where none of them changes: what some providers take in their own way only are
    calls, their results, and names."""
    messages = chat.messages
    if chat.kinds.isdisjoint((ToolCall, ToolResult)) and (
        flavor.message_names or all(message.name is None for message in messages)
    ):
        return None
    ids = adapt_call_ids(messages, flavor.tool_call_ids)
    fit = [_adapt_message(message, number, ids, flavor, target) for number, message in enumerate(messages)]
    return fit if any(new is not old for new, old in zip(fit, messages, strict=True)) else None


def _adapt_message(message: Message, number: int, ids: dict[str, str], flavor: Flavor, target: Target) -> Message:
    if message.name is not None and not flavor.message_names:
        target.note_dropped(f"messages[{number}].name", "messages have no names at this model's provider")
        message = replace(message, name=None)
    parts = [_adapt_part(part, ids, flavor) for part in message.parts]
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts)


def _adapt_part(part: Part, ids: dict[str, str], flavor: Flavor) -> Part:
    if isinstance(part, ToolCall):
        extra = part.extra or {}
        if part.id in ids or (SIGNATURE_FIELD in extra and SIGNATURE_FIELD not in flavor.takes):
            kept = {name: value for name, value in extra.items() if name != SIGNATURE_FIELD or name in flavor.takes}
            if SIGNATURE_FIELD in flavor.takes and (signature := split_signature(part.id)[1]) is not None:
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


def _without_strange_fields(chat: Chat, flavor: Flavor, target: Target) -> Chat:
    """Leave out the fields of a client's that a provider without tolerance would refuse the whole request for."""
    extra = chat.extra or {}
    for name in extra.keys() - flavor.takes:
        target.note_dropped(name, f"{name} has no counterpart at this model's provider")
    kept = {name: value for name, value in extra.items() if name in flavor.takes}
    choice = chat.tool_choice
    if choice is None or not choice.allowed:
        return replace(chat, extra=kept or None)
    # Fewer tools say the same as a choice among some of them.
    tools = [tool for tool in chat.tools or () if isinstance(tool, FunctionTool) and tool.name in choice.allowed]
    return replace(chat, extra=kept or None, tools=tools or None, tool_choice=replace(choice, allowed=()))
