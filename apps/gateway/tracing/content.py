"""Content of a trace: request and answer as the conventions' messages, for organizations that retain content.

Asked for only where the deployment says so and the record keeps content. Files are named, never included. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, Part, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.tracing.request_trace import AttributeValue
from apps.logs.entry import Entry
from apps.logs.genai_names import finish_reason_of

# Characters of one attribute; a longer one is left out whole, as half of it could not be read.
MAX_CHARACTERS = 65_536
RETAINED = "retain"


def content_attributes(entry: Entry, chat: Chat) -> dict[str, AttributeValue]:
    """Return a request's messages, tools and answer, as JSON; nothing unless the organization retains content."""
    if entry.retention_level != RETAINED:
        return {}
    found: dict[str, AttributeValue] = {}
    _add(found, "gen_ai.input.messages", [_message(one) for one in chat.messages])
    if tools := [_definition(one) for one in chat.tools or () if isinstance(one, FunctionTool)]:
        _add(found, "gen_ai.tool.definitions", tools)
    if entry.content is not None:
        parts = [{"type": "text", "content": entry.content}]
        reason = finish_reason_of(entry.finish_reason, entry.unified_finish_reason)
        said = {"role": "assistant", "parts": parts, "finish_reason": reason}
        _add(found, "gen_ai.output.messages", [said])
    return found


def _add(found: dict[str, AttributeValue], name: str, values: list[dict[str, Any]]) -> None:
    text = msgspec.json.encode(values).decode()
    if len(text) <= MAX_CHARACTERS:
        found[name] = text


def _definition(tool: FunctionTool) -> dict[str, Any]:
    told = {"description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "name": tool.name, **{name: value for name, value in told.items() if value is not None}}


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part(one) for one in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "content": part.text}
    if isinstance(part, Reasoning):
        return {"type": "reasoning", "content": part.text}
    if isinstance(part, ToolCall):
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    if isinstance(part, ToolResult):
        result = "".join(one.text for one in part.parts if isinstance(one, Text))
        return {"type": "tool_call_response", "id": part.call_id, "result": result}
    return {"type": type(part).__name__.lower()}
