"""Structured output emulated for models that take no JSON schema: by a forced tool that the client never sees, or by
instructions.

Knows the fact `structured_outputs`. Must never know a wire format.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, ResponseFormat, Target, Text
from apps.gateway.dialects.adapting.structured_output_tool import add_structured_output_tool
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped

_INSTRUCTIONS: Final = frozenset({"system", "developer"})


def emulate_structured_output(chat: Chat, target: Target) -> Chat:
    """Return the chat for a target that may take no schemas: with a tool in its place, or asked for in words, which is
    noted, as the answer is not bound to it then."""
    form, way = chat.response_format, target.facts.get("structured_outputs", "native")
    if form is None or form.kind != "json_schema" or way == "native":
        return chat
    if way == "tool":
        return add_structured_output_tool(chat, target)
    note_dropped(chat, target, "response_format", "the schema is asked for in words: the answer is not bound to it")
    target.rewrites.healing = True
    schema = msgspec.json.encode(form.schema or {}).decode()
    words = f"Answer with nothing but JSON that is valid for this JSON schema:\n{schema}"
    begins = next((at for at, it in enumerate(chat.messages) if it.role not in _INSTRUCTIONS), len(chat.messages))
    instruction = Message(role="system", parts=[Text(text=words)])
    messages = [*chat.messages[:begins], instruction, *chat.messages[begins:]]
    return replace(chat, messages=messages, response_format=ResponseFormat(kind="json_object"), source=None)
