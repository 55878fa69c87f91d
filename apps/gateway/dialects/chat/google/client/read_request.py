"""Google generateContent, client side: reads a request body into a canonical chat; errors name the field.

Knows the format's fields; the model and whether the answer is streamed are said by the path. Fields that are not known
are kept. Must never know models, providers or limits of an account.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Chat, Message, Source
from apps.gateway.dialects.chat.google.client.field_names import camel_cased
from apps.gateway.dialects.chat.google.client.read_config import read_config
from apps.gateway.dialects.chat.google.client.read_contents import read_contents, read_instruction
from apps.gateway.dialects.chat.google.client.read_parts import brings_carriers
from apps.gateway.dialects.chat.google.client.read_tools import read_tool_config, read_tools
from apps.gateway.dialects.chat.google.shared.wire import NAME, encode
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, Record, record, string

MAX_MODEL = 512
# What models read; it may be as long as a body.
_CONVERSATION = frozenset({"contents", "systemInstruction", "tools", "generationConfig"})
# What stands for a model that is named elsewhere.
_UNNAMED = "-"


def read_request(body: bytes, model: str = _UNNAMED, *, stream: bool = False) -> Chat:
    """Return the chat that a body asks a model for. Raises InvalidRequest (`invalid_json`, `invalid_parameters`)."""
    if len(model) > MAX_MODEL or not model:
        raise Malformed(f"must have 1 to {MAX_MODEL} characters", "model").as_error()
    given = fields.read_json(body)
    wire = camel_cased(given, body)
    return read_fields(wire, model, body if wire is given else encode(wire), stream=stream)


def read_prompt(body: bytes, model: str) -> Chat:
    """Return the chat of a question how long it is: contents alone, or a whole request under a name of its own."""
    given = fields.read_json(body)
    wire = camel_cased(given, body)
    inner = wire.get("generateContentRequest")
    if inner is None:
        known = {name: wire[name] for name in ("contents", *_ALSO_COUNTED) if wire.get(name) is not None}
        return read_fields(known, model, encode(known))
    try:
        asked = fields.within("generateContentRequest", record, inner)
    except Malformed as refusal:
        raise refusal.as_error() from None
    return read_fields(asked, model, encode(asked))


def read_fields(wire: Record, model: str, body: bytes, *, stream: bool = False) -> Chat:
    """Return the chat that the fields of a body ask for; `body` is what they were read from. Raises InvalidRequest."""
    known: dict[str, Any] = {}
    extra: Record = {}
    try:
        fields.check_beside(wire, body, _CONVERSATION)
        for name, value in wire.items():
            if value is None or name == "model":
                continue
            if read := _FIELDS.get(name):
                known[name] = fields.within(name, read, value)
            else:
                extra[name] = value
        if "contents" not in known:
            raise Malformed("Required", "contents")
    except Malformed as refusal:
        raise refusal.as_error() from None
    chat = _chat_of(known, extra, model, stream=stream)
    if not brings_carriers(chat.messages):
        chat.source = Source(dialect=NAME, body=body)
    return chat


def _chat_of(known: dict[str, Any], extra: Record, model: str, *, stream: bool) -> Chat:
    """Put the fields together. What a field says beyond the canonical language stays beside it, under its name."""
    messages: list[Message] = known["contents"]
    if instruction := known.get("systemInstruction"):
        messages = [Message(role="system", parts=instruction), *messages]
    config, left = known.get("generationConfig", ({}, None))
    if left:
        extra["generationConfig"] = left
    choice, left = known.get("toolConfig", (None, None))
    if left:
        extra["toolConfig"] = left
    tools = known.get("tools") or None
    return Chat(
        model=model,
        messages=messages,
        stream=stream,
        tools=tools,
        tool_choice=choice,
        service_tier=known.get("serviceTier"),
        extra=extra or None,
        dialect=NAME,
        **config,
    )


def _tier(value: Any) -> str | None:
    tier = string(value).lower()
    return {"standard": "default", "unspecified": None, "service_tier_unspecified": None}.get(tier, tier)


_ALSO_COUNTED = ("systemInstruction", "tools", "generationConfig", "toolConfig", "cachedContent")
_FIELDS: dict[str, Reader[Any]] = {
    "contents": read_contents,
    "systemInstruction": read_instruction,
    "tools": read_tools,
    "toolConfig": read_tool_config,
    "generationConfig": read_config,
    "serviceTier": _tier,
}
