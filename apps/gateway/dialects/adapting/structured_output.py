"""Structured output emulated for models that take no JSON schema: by a forced tool that the client never sees, or by
instructions.

The fact `structured_outputs` chooses between them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, ResponseFormat, Target, Text, ToolChoice
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped

_NAME = "final_answer"
_PURPOSE = "Give the final answer with this tool, and only with it."
_VALUE = "value"
_ROOT = "#"
_DEFINITIONS = ("$defs", "definitions")


def add_structured_output_tool(chat: Chat, target: Target) -> Chat:
    """Return the chat without its `response_format` and with a tool in its place that the model has to call.

    Beside tools of the client's, the model calls one of those or answers by this one. Where the client insists on a
    call of its own tools, there is no answer to give a form to. A chat that wants no form is returned as it is.
    `target` learns what its answer will have to be changed back in.
    """
    form = chat.response_format
    if form is None or form.kind == "text":
        return chat
    choice = chat.tool_choice or ToolChoice(mode="auto")
    tools = chat.tools or []
    if tools and choice.mode in ("required", "named"):
        return replace(chat, response_format=None, source=None)
    names = {tool.name for tool in tools if isinstance(tool, FunctionTool)}
    name = _NAME
    while name in names:
        name += "_"
    schema, wrapped = object_schema(form.schema)
    target.rewrites.hidden_tool, target.rewrites.wrapped_in_value = name, wrapped
    if choice.mode == "none" or not (tools or chat.web_search):
        forced = ToolChoice(mode="named", name=name)
    else:
        forced = ToolChoice(mode="required", allowed=(*choice.allowed, name) if choice.allowed else ())
    return replace(
        chat,
        tools=[*tools, FunctionTool(name=name, description=_purpose_of(form), parameters=schema)],
        tool_choice=forced,
        response_format=None,
        source=None,
    )


def object_schema(schema: dict[str, Any] | None) -> tuple[dict[str, Any], bool]:
    """Return a schema that a tool can have, and whether that is the given one in the field `value` of an object.

    A reference keeps its meaning: definitions stay at the root, other references follow what they point to.
    """
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": True}, False
    if schema.get("type") == "object":
        return schema, False
    if "type" not in schema and isinstance(schema.get("properties"), dict):
        return {"type": "object", **schema}, False
    moved = {name: part for name, part in schema.items() if name not in _DEFINITIONS}
    wrapped = {"type": "object", "properties": {_VALUE: _moved(moved)}, "required": [_VALUE]}
    kept = {name: _moved(schema[name]) for name in _DEFINITIONS if name in schema}
    return {**wrapped, "additionalProperties": False, **kept}, True


def _purpose_of(form: ResponseFormat) -> str:
    return f"{_PURPOSE} {form.description}" if form.description else _PURPOSE


def _moved(part: Any) -> Any:
    """Return a part of a schema whose references follow the schema into the field `value`."""
    if isinstance(part, list):
        return [_moved(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    return {name: _moved_reference(inner) if name == "$ref" else _moved(inner) for name, inner in part.items()}


def _moved_reference(reference: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith(_ROOT):
        return reference
    if any(reference.startswith(f"#/{name}/") for name in _DEFINITIONS):
        return reference
    return f"#/properties/{_VALUE}{reference.removeprefix(_ROOT)}"


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
