"""Anthropic Messages, provider side: thinking signatures across the tool calls of one turn: whose are sent back, and
what happens to a turn that lacks its thinking.

With a budget for thinking, a turn in which tools are being called is refused unless it begins with the thinking that it
began with; where the model decides for itself how much it thinks, it is not.
"""

from __future__ import annotations

import msgspec

from apps.gateway.canonical.chat import Chat, Message, Reasoning, Target, ToolCall
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.anthropic.provider.write_messages import is_signed
from apps.gateway.dialects.chat.anthropic.shared.wire import SIGNATURE_FORMAT
from apps.gateway.dialects.reading.fields import Record


def signature_format(chat: Chat, target: Target) -> str | None:
    """Return whose signatures are wanted back: our own, when the model is to think."""
    asked = chat.reasoning
    if asked is not None and asked.max_tokens is not None:
        return SIGNATURE_FORMAT
    effort = asked.effort if asked is not None and asked.effort is not None else chat.effort
    if effort not in {None, "none"}:
        return SIGNATURE_FORMAT
    # A client of this very format may leave it to the model.
    said = (chat.extra or {}).get("thinking")
    return SIGNATURE_FORMAT if isinstance(said, dict) and said.get("type") in ("enabled", "adaptive") else None


def drop_thinking(wire: Record, chat: Chat, target: Target) -> None:
    """Switch thinking off for a request that would be refused with it: its open turn has lost its thinking."""
    said = wire.get("thinking")
    thinking = msgspec.json.decode(said) if isinstance(said, msgspec.Raw) else said
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled" or not _lacks_thinking(chat.messages):
        return
    del wire["thinking"]
    note_dropped(
        chat, target, "reasoning", "the thinking that led to the latest calls did not come back, so there is none now"
    )


def _lacks_thinking(messages: list[Message]) -> bool:
    """Return whether a conversation ends in a turn of calls and their results that does not begin with thinking."""
    if messages[-1].role == "assistant":
        return False
    turn: list[Message] = []
    for message in reversed(messages):
        if message.role == "user" and message is not messages[-1]:
            break
        turn.append(message)
    said = [message for message in reversed(turn) if message.role == "assistant"]
    if not said or not any(isinstance(part, ToolCall) for part in said[-1].parts):
        return False
    # Thinking under another's signature is not sent.
    begins = next((part for part in said[0].parts if is_signed(part)), None)
    return not isinstance(begins, Reasoning)
