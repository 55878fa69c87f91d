"""Google generateContent, client side: the request as the log keeps it, as it was sent or as the gateway changed it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Opaque, Part, Reasoning, Target, ToolChoice
from apps.gateway.dialects.chat.google.provider.write_request import write_fields
from apps.gateway.dialects.chat.google.shared.wire import NAME, SIGNATURE_FORMAT, encode
from apps.gateway.dialects.reading.fields import Record

_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_FORM = ("responseMimeType", "responseSchema", "responseJsonSchema")
# A model that takes whatever its format can say.
_EVERYTHING = {"reasoning_budget": {}, "takes": ["search_with_tools"]}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    The system instruction, which this format has beside the contents, is the first of the messages. Raises
    InvalidRequest for what the format cannot express, which never happens to a chat that was read from it.
    """
    body = chat.source.body if chat.source is not None and chat.source.dialect == NAME else _written(chat)
    wire: Record = {name: raw for name, raw in _read_fields(body).items() if raw != _NULL}
    messages: Any = wire["contents"]
    if "systemInstruction" in wire:
        contents = _entries(messages)
        messages = [{"role": "system", **_instruction(wire["systemInstruction"])}, *contents]
    logged: Record = {"messages": messages}
    if "tools" in wire:
        logged["tools"] = wire["tools"]
    if "toolConfig" in wire:
        logged["tool_choice"] = wire["toolConfig"]
    config: Record = _read_fields(wire["generationConfig"]) if "generationConfig" in wire else {}
    form = {name: config[name] for name in _FORM if name in config}
    return {**logged, "response_format": form} if form else logged


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as `toolConfig`: names, and nothing that a client could hide in it."""
    names = [choice.name] if choice.mode == "named" else list(choice.allowed)
    config: Record = {"mode": "VALIDATED" if choice.mode == "auto" and names else _MODES[choice.mode]}
    return {"functionCallingConfig": {**config, **({"allowedFunctionNames": names} if names else {})}}


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what functions answered: parts of the user's contents."""
    contents = [content for content in messages if isinstance(content, dict)]
    parts = [part for content in contents for part in _listed(content.get("parts"))]
    return [part for part in parts if isinstance(part, dict) and "functionResponse" in part]


def _entries(contents: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(contents, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return [contents]


def _listed(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as Google takes it: the only one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _instruction(raw: msgspec.Raw) -> Record:
    said = msgspec.json.decode(raw)
    return {"parts": said["parts"]} if isinstance(said, dict) else {"parts": [{"text": said}]}


def _written(chat: Chat) -> bytes:
    messages = [_with_all_thinking(message) for message in chat.messages]
    asked = replace(chat, messages=messages, source=None)
    return encode(write_fields(asked, Target(model_name=chat.model, facts=_EVERYTHING)))


def _with_all_thinking(message: Message) -> Message:
    """Return a message with its thinking, including thinking that another maker signed."""
    return replace(message, parts=[_signed(part) for part in message.parts])


def _signed(part: Part) -> Part:
    if isinstance(part, Reasoning) and part.text and part.format != SIGNATURE_FORMAT:
        return Opaque(dialect=NAME, data={"text": part.text, "thought": True})
    return part
