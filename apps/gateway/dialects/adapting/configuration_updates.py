"""Configuration updates: items of the Responses format that change how much a model thinks from there on.

A provider of another format gets the latest effort instead of the request's own.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Opaque, Part, ReasoningRequest

CONFIGURATION_UPDATE: Final = "configuration_update"


def apply_updates(chat: Chat) -> Chat:
    """Return the chat with the latest effort that an item states, and without these items; one that states the form of
    answers stays."""
    updates = [part for message in chat.messages for part in message.parts if _is_of_effort(part)]
    if not updates:
        return chat
    messages = [kept for message in chat.messages if (kept := _without_updates(message)).parts or not message.parts]
    efforts = [_effort_of(part) for part in updates]
    effort = next((effort for effort in reversed(efforts) if effort is not None), None)
    reasoning = chat.reasoning
    if effort is not None:
        reasoning = replace(reasoning or ReasoningRequest(), effort=effort)
    return replace(chat, messages=messages, reasoning=reasoning, source=None)


def _without_updates(message: Message) -> Message:
    return replace(message, parts=[part for part in message.parts if not _is_of_effort(part)])


def _is_of_effort(part: Part) -> bool:
    data: Any = part.data if isinstance(part, Opaque) else None
    return isinstance(data, dict) and data.get("type") == CONFIGURATION_UPDATE and data.get("text") is None


def _effort_of(part: Part) -> Any:
    """Return the effort that an update states, which its reader has checked."""
    data: Any = part.data if isinstance(part, Opaque) else {}
    return (data.get("reasoning") or {}).get("effort")
