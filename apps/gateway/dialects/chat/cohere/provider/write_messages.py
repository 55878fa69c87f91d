"""Cohere Chat v2, provider side: writes `messages`, one for one and in order; images follow the tool results of their
turn.

Knows roles and parts of the wire format. Must never know a model by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from apps.gateway.canonical.chat import (
    Chat,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.signed_call_ids import split_signature
from apps.gateway.dialects.adapting.unsupported_fields import message_path
from apps.gateway.dialects.chat.cohere.shared.wire import NAME, PLAN_FORMAT, Record, refused, without_none


def write_messages(chat: Chat, target: Target, *, thinks: bool) -> list[Record]:
    """Return all messages; `thinks` tells whether the model reads earlier thinking. Raises InvalidRequest naming the
    part that cannot be said."""
    written: list[Record] = []
    shown: list[Record] = []
    for number, message in enumerate(chat.messages):
        place = message_path(chat, number)
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if shown and not results:
            written.append({"role": "user", "content": shown})
            shown = []
        written.extend(_result(result, place, shown) for result in results)
        if results:
            shown += _content([part for part in message.parts if not isinstance(part, ToolResult)], place)
        elif message.role == "assistant":
            written.append(_answer(message.parts, place, target, thinks=thinks))
        else:
            role = "system" if message.role in ("system", "developer") else "user"
            written.append(
                {"role": role, "content": _plain(_content(message.parts, place, only_text=role == "system"))}
            )
    if shown:
        written.append({"role": "user", "content": shown})
    return written


def _answer(parts: list[Part], place: str, target: Target, *, thinks: bool) -> Record:
    """Return an earlier answer of the model's, with what it thought where the model reads that."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    thoughts = [part for part in parts if isinstance(part, Reasoning) and part.text]
    plans = [part for part in thoughts if part.format == PLAN_FORMAT or (calls and not thinks)]
    said = [part for part in parts if not isinstance(part, ToolCall | Reasoning | Image)]
    if any(isinstance(part, Image) for part in parts):
        target.note_dropped(f"{place}.images", "an answer's pictures cannot go back to this model's provider")
    content = _content(said, place)
    if thinks:
        deep = [part for part in thoughts if part not in plans]
        content = [*({"type": "thinking", "thinking": part.text} for part in deep), *content]
    return without_none(
        role="assistant",
        content=_plain(content) if content or not calls else None,
        tool_plan="\n".join(part.text for part in plans) if plans and calls else None,
        tool_calls=[_call(call) for call in calls] or None,
    )


def _call(call: ToolCall) -> Record:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": split_signature(call.id)[0], "type": "function", "function": function}


def _result(result: ToolResult, place: str, shown: list[Record]) -> Record:
    """Return what a tool answered; the images in it are added to `shown`."""
    content: list[Record] = []
    for part in _content(result.parts, place):
        (shown if part["type"] == "image_url" else content).append(part)
    if result.is_error:
        content = [{"type": "text", "text": "Error:"}, *content]
        if all(part["type"] == "text" for part in content):
            content = [{"type": "text", "text": " ".join(part["text"] for part in content)}]
    return {"role": "tool", "tool_call_id": split_signature(result.call_id)[0], "content": _plain(content)}


def _content(parts: Sequence[Part], place: str, *, only_text: bool = False) -> list[Record]:
    """Return parts as the wire has them. Raises InvalidRequest for what is neither text nor, for users, an image."""
    content: list[Record] = []
    for number, part in enumerate(parts):
        if isinstance(part, Text | Refusal):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Image) and not only_text:
            content.append({"type": "image_url", "image_url": without_none(url=part.url, detail=part.detail)})
        elif isinstance(part, Opaque) and part.dialect == NAME:
            content.append(dict(part.data))
        else:
            raise refused(
                "A message holds content that this model's provider has no form for", f"{place}.content[{number}]"
            )
    filled = [part for part in content if part.get("text") != ""]
    return filled or content[:1]


def _plain(content: list[Record]) -> str | list[Record]:
    """Return a text alone as the string that it is."""
    if not content:
        return ""
    if len(content) == 1 and content[0]["type"] == "text":
        return str(content[0]["text"])
    return content
