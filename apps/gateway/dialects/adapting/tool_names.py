"""Tool names that a provider does not take are sent as others that it takes; `undo_rewrites.py` restores them in the
answer.

The same names are always sent as the same, so that prompts stay cached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, Part, Target, ToolCall, ToolChoice, ToolResult

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS = 8


def adapt_tool_names(chat: Chat, target: Target, allowed: re.Pattern[str], longest: int) -> Chat:
    """Return the chat with names of tools that `allowed` matches in full and that are at most so long.

    A chat whose names all fit is returned as it is. `target` keeps the original name of each name sent.
    """
    unfit = {name for name in _names_in(chat) if len(name) > longest or not allowed.fullmatch(name)}
    if not unfit:
        return chat
    sent = {name: _fitting(name, longest) for name in sorted(unfit)}
    target.rewrites.tool_names |= {fitting: name for name, fitting in sent.items()}
    return replace(
        chat,
        messages=[_renamed_message(message, sent) for message in chat.messages],
        tools=[
            replace(tool, name=sent.get(tool.name, tool.name)) if isinstance(tool, FunctionTool) else tool
            for tool in chat.tools or ()
        ]
        or None,
        tool_choice=None if chat.tool_choice is None else _renamed_choice(chat.tool_choice, sent),
        source=None,
    )


def _names_in(chat: Chat) -> Iterator[str]:
    for tool in chat.tools or ():
        if isinstance(tool, FunctionTool):
            yield tool.name
    for message in chat.messages:
        for part in message.parts:
            if isinstance(part, ToolCall | ToolResult) and part.name is not None:
                yield part.name


def _fitting(name: str, longest: int) -> str:
    """Return a name that every format takes: what can stay of it, and digits that only it has."""
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    stem = _UNSAFE.sub("_", name)[: longest - _DIGITS - 3].lstrip("-0123456789")
    return f"{stem or 'tool'}__{digits}"


def _renamed_message(message: Message, sent: dict[str, str]) -> Message:
    parts = [_renamed_part(part, sent) for part in message.parts]
    return (
        message
        if all(new is old for new, old in zip(parts, message.parts, strict=True))
        else replace(message, parts=parts)
    )


def _renamed_part(part: Part, sent: dict[str, str]) -> Part:
    if isinstance(part, ToolCall | ToolResult) and part.name in sent:
        return replace(part, name=sent[part.name])
    return part


def _renamed_choice(choice: ToolChoice, sent: dict[str, str]) -> ToolChoice:
    name = choice.name
    return replace(
        choice,
        name=sent.get(name, name) if name is not None else None,
        allowed=tuple(sent.get(one, one) for one in choice.allowed),
    )
