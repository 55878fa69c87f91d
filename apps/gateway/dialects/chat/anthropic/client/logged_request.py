"""Anthropic Messages, client side: the request as the log keeps it, as sent or as the gateway changed it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Part, Reasoning, ResponseFormat, Target, ToolChoice
from apps.gateway.dialects.chat.anthropic.provider.write_messages import (
    is_signed,
    split_system,
    tool_choice_of,
    write_messages,
    write_system,
    write_tools,
)
from apps.gateway.dialects.chat.anthropic.shared.wire import NAME, SIGNATURE_FORMAT
from apps.gateway.dialects.reading.fields import Record

_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    The system prompt, which this format has beside the messages, is the first of them. Raises InvalidRequest for what
    the format cannot express, which never happens to a chat that was read from it.
    """
    if chat.source is not None and chat.source.dialect == NAME:
        wire: Record = {name: raw for name, raw in _read_fields(chat.source.body).items() if raw != _NULL}
        form: Any = _read_fields(wire["output_config"]).get("format", _NULL) if "output_config" in wire else _NULL
        form = None if form == _NULL else form
    else:
        wire = _written(chat)
        form = None if chat.response_format is None else _form(chat.response_format)
    logged: Record = {"messages": wire["messages"]}
    if "system" in wire:
        messages = wire["messages"]
        rest = _read_entries(messages) if isinstance(messages, msgspec.Raw) else messages
        logged["messages"] = [{"role": "system", "content": wire["system"]}, *rest]
    logged |= {name: wire[name] for name in ("tools", "tool_choice") if name in wire}
    return logged if form is None else {**logged, "response_format": form}


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as the field `tool_choice`: names, and nothing that a client could hide in it."""
    return tool_choice_of(choice, parallel)


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: blocks of users' messages."""
    contents = [content for message in messages if isinstance(content := message.get("content"), list)]
    return [block for content in contents for block in content if block.get("type") == "tool_result"]


def _written(chat: Chat) -> Record:
    instructions, messages = split_system(chat.messages)
    wire: Record = {"messages": write_messages(map(_with_all_thinking, messages), same_dialect=True)}
    if system := write_system(instructions, same_dialect=True):
        wire["system"] = system
    write_tools(wire, chat, Target(model_name=chat.model, facts={}), same_dialect=True)
    return wire


def _with_all_thinking(message: Message) -> Message:
    """Return a message with its thinking, including thinking that another maker signed."""
    if all(map(is_signed, message.parts)):
        return message
    return replace(message, parts=[_signed(part) for part in message.parts])


def _signed(part: Part) -> Part:
    return (
        replace(part, signature=part.signature or "", format=SIGNATURE_FORMAT) if isinstance(part, Reasoning) else part
    )


def _form(form: ResponseFormat) -> Record:
    return {"type": form.kind, **({} if form.schema is None else {"schema": form.schema})}
