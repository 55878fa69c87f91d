"""Bedrock Converse, provider side: structured output natively, by a forced tool, or by instructions for JSON of any
shape.

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from apps.gateway.canonical.chat import Chat, ResponseFormat, Target
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, close_schema
from apps.gateway.dialects.adapting.structured_output_tool import add_structured_output_tool
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.bedrock.shared.wire import Record, encode

JSON_PLEASE: Record = {"text": "Answer with one JSON object and nothing else."}


def with_form(chat: Chat, target: Target) -> tuple[Chat, Record | None]:
    """Return the chat to write, and `outputConfig`, which binds the answer; what it does not bind is noted.

    Where the model takes no schemas, or not this one, a tool takes it: then the chat that is returned has that tool.
    """
    form = chat.response_format
    if form is None or form.kind != "json_schema" or form.schema is None:
        return chat, None
    if target.facts.get("structured_outputs") == "native":
        try:
            schema, left_out = close_schema(form.schema)
        except UnsupportedSchema:
            pass
        else:
            if left_out:
                note_dropped(
                    chat, target, "response_format", f"the answer is not bound to {', '.join(left_out)} of its schema"
                )
            return chat, _output(form, schema)
    return add_structured_output_tool(chat, target), None


def wants_any_json(chat: Chat) -> bool:
    """Return whether JSON is wanted that no schema describes."""
    form = chat.response_format
    return form is not None and (form.kind == "json_object" or (form.kind == "json_schema" and form.schema is None))


def _output(form: ResponseFormat, schema: Record) -> Record:
    """Return `outputConfig`, in which a schema travels as text."""
    definition: Record = {"schema": encode(schema).decode()}
    if form.name:
        definition["name"] = form.name
    if form.description:
        definition["description"] = form.description
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}
