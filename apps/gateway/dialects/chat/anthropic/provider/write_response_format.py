"""Anthropic Messages, provider side: structured output by `output_config`, by a forced tool, or by instructions for
JSON of any shape.

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, close_schema, described
from apps.gateway.dialects.adapting.structured_output_tool import add_structured_output_tool
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped

Record = dict[str, Any]

_JSON_PLEASE = {"type": "text", "text": "Answer with one JSON object and nothing else."}
_CONFIG = "output_config"


def is_native(target: Target) -> bool:
    """Return whether the model takes schemas; one of which nothing is said does."""
    return bool(target.facts.get("structured_outputs", "native") == "native")


def with_form(chat: Chat, target: Target, *, same_dialect: bool) -> tuple[Chat, Record | None]:
    """Return the chat to write, and the schema to bind its answer to; what a schema cannot bind is noted.

    Where the model takes no schemas, or not this one, a tool takes it: then the chat that is returned has that tool.
    """
    form = chat.response_format
    if form is None or form.kind != "json_schema" or form.schema is None:
        return chat, None
    if is_native(target):
        if same_dialect:
            return chat, form.schema
        try:
            schema, left_out = close_schema(described(form.schema, form))
        except UnsupportedSchema:
            pass
        else:
            if left_out:
                note_dropped(
                    chat, target, "response_format", f"the answer is not bound to {', '.join(left_out)} of its schema"
                )
            return chat, schema
    return _without_config(add_structured_output_tool(chat, target)), None


def write_form(wire: Record, chat: Chat, target: Target, schema: Record | None) -> None:
    """Add the form. There is no switch for JSON of any shape: it is asked for in words, and repaired where needed."""
    if schema is not None:
        wire.setdefault(_CONFIG, {})["format"] = {"type": "json_schema", "schema": schema}
    elif chat.response_format is not None and chat.response_format.kind != "text":
        system = wire.get("system", [])
        wire["system"] = [*([{"type": "text", "text": system}] if isinstance(system, str) else system), _JSON_PLEASE]
        target.rewrites.healing = True


def _without_config(chat: Chat) -> Chat:
    """Return a chat whose own `output_config` asks for no form any more."""
    if not chat.extra or not isinstance(config := chat.extra.get(_CONFIG), dict):
        return chat
    rest = {name: value for name, value in config.items() if name != "format"}
    extra = {name: value for name, value in chat.extra.items() if name != _CONFIG}
    return replace(chat, extra={**extra, _CONFIG: rest} if rest else extra)
