"""OpenAI Chat Completions, provider side: passes a client's own body through byte for byte, changing only what the
gateway must."""

from __future__ import annotations

import msgspec

from apps.gateway.canonical.chat import Chat, Message, Reasoning, Tool, ToolResult, WebSearchTool
from apps.gateway.dialects.chat.openai.provider.capabilities import Capabilities
from apps.gateway.dialects.chat.openai.provider.write_messages import fill_reasoning
from apps.gateway.dialects.chat.openai.wire import PARKED
from apps.gateway.dialects.reading.fields import Record

# A JSON value that may be the bytes the client sent.

_NULL = msgspec.Raw(b"null")
_THOUGHTS = ("reasoning", "reasoning_content")
read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
read_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


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
