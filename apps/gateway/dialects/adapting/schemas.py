"""JSON schemas for providers that take a part of JSON Schema, or none; dropped keywords are reported to the caller.

Order of properties is kept: models write in that order. The subsets are those that the makers' SDKs state. For models
that take no schema, structured output is emulated by a forced tool that the client never sees, or by instructions; the
fact `structured_outputs` chooses between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, ResponseFormat, Target, Text, ToolChoice
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped

Schema = dict[str, Any]

# Texts' formats that a grammar of Anthropic's knows. A tuple: a client's value may be a list, which no set looks up.
_FORMATS: Final = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
_DEFINITIONS: tuple[str, ...] = ("$defs", "definitions")
# Keywords that do not constrain an answer.
_REMARKS: Final = frozenset(
    {"$schema", "$id", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)
# Keywords that Google enforces.
_GOOGLES: Final = frozenset(
    {
        *("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems"),
        *("minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties"),
        *("required", "propertyOrdering"),
    }
)
_NAMED_PARTS: Final = ("properties", "$defs", "definitions", "patternProperties")
_PARTS: Final = ("items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else")
_LISTED_PARTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")


class UnsupportedSchema(Exception):
    """A schema that a subset has no words for at all."""


def described(schema: Schema, form: ResponseFormat) -> Schema:
    """Return a response format's schema with its description inside, for formats without a field for it."""
    if form.description is None or "description" in schema or "$ref" in schema:
        return schema
    return {"description": form.description, **schema}


def object_root(schema: Schema | None) -> Schema:
    """Return the parameters of a tool as every provider takes them: an object. Raises UnsupportedSchema for others."""
    if not schema:
        return {"type": "object", "properties": {}}
    kind = schema.get("type")
    if kind is None:
        return {"type": "object", **schema}
    if kind != "object":
        raise UnsupportedSchema
    return schema


def close_schema(schema: Schema) -> tuple[Schema, list[str]]:
    """Return a schema in the part of JSON Schema that Anthropic compiles into a grammar, and the keywords left out.

    Raises UnsupportedSchema where that would mean something else: for what refers to itself, and objects of any fields.
    """
    if _refers_to_itself(schema):
        raise UnsupportedSchema
    left_out: dict[str, None] = {}
    return _closed(schema, left_out), list(left_out)


def _closed(schema: Any, left_out: dict[str, None]) -> Schema:
    if not isinstance(schema, dict):
        raise UnsupportedSchema
    wire: Schema = {}
    for name in _DEFINITIONS:
        if isinstance(definitions := schema.get(name), dict):
            wire[name] = {key: _closed(part, left_out) for key, part in definitions.items()}
    if "$ref" in schema:
        return {**wire, "$ref": schema["$ref"]}
    kind = schema.get("type")
    if isinstance(kind, list):
        return {**wire, **_closed_variants(schema, kind, left_out)}
    wire |= {name: schema[name] for name in ("title", "description", "type", "enum", "const") if name in schema}
    for name, keyword in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        if isinstance(variants := schema.get(name), list):
            wire[keyword] = [_closed(part, left_out) for part in variants]
    if kind == "object" or "properties" in schema:
        wire |= _closed_object(schema, left_out)
    wire |= _closed_limits(schema, left_out)
    if not wire.keys() & {"type", "enum", "const", "anyOf", "allOf"}:
        raise UnsupportedSchema
    for name in schema:
        if name not in wire and name not in _REMARKS and name != "oneOf":
            left_out[name] = None
    return wire


def _closed_variants(schema: Schema, kinds: list[Any], left_out: dict[str, None]) -> Schema:
    """Return a schema of several types as a choice among schemas of one."""
    words: Schema = {name: schema[name] for name in ("title", "description") if name in schema}
    shared = {name: value for name, value in schema.items() if name not in ("type", *words, *_DEFINITIONS)}
    return {**words, "anyOf": [_closed({**_fitting(shared, one), "type": one}, left_out) for one in kinds]}


def _closed_limits(schema: Schema, left_out: dict[str, None]) -> Schema:
    """Return the supported constraints of an array or a text."""
    wire: Schema = {}
    if schema.get("type") == "array" and "items" in schema:
        wire["items"] = _closed(schema["items"], left_out)
    if schema.get("minItems") in (0, 1):
        wire["minItems"] = schema["minItems"]
    if schema.get("format") in _FORMATS:
        wire["format"] = schema["format"]
    return wire


def _closed_object(schema: Schema, left_out: dict[str, None]) -> Schema:
    properties = schema.get("properties")
    open_fields = schema.get("additionalProperties", False)
    if open_fields not in (False, True) or (open_fields and not properties) or "patternProperties" in schema:
        raise UnsupportedSchema
    if properties is not None and not isinstance(properties, dict):
        raise UnsupportedSchema
    parts = {name: _closed(part, left_out) for name, part in (properties or {}).items()}
    wire: Schema = {"type": "object", "properties": parts, "additionalProperties": False}
    if "required" in schema:
        wire["required"] = schema["required"]
    return wire


def _fitting(shared: Schema, kind: Any) -> Schema:
    """Return the keywords for one of several types: enum values are divided by type, null has no other keywords."""
    if kind == "null":
        return {}
    if isinstance(shared.get("enum"), list):
        return {**shared, "enum": [value for value in shared["enum"] if value is not None]}
    return shared


def _refers_to_itself(schema: Schema) -> bool:
    """Return whether following references leads back to where one was."""
    edges: dict[str, set[str]] = {"#": set(_references(schema, definitions=False))}
    for name in _DEFINITIONS:
        definitions = schema.get(name)
        for key, part in (definitions if isinstance(definitions, dict) else {}).items():
            edges[f"#/{name}/{key}"] = set(_references(part))
    safe: set[str] = set()

    def loops(at: str, above: frozenset[str]) -> bool:
        if at in above or at not in edges:
            # Other references are not followed: the value may be anything.
            return True
        if at in safe:
            return False
        if any(loops(reference, above | {at}) for reference in edges[at]):
            return True
        safe.add(at)
        return False

    return any(loops(at, frozenset()) for at in edges)


def _references(schema: Any, *, definitions: bool = True) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)
    elif isinstance(schema, dict):
        for name, part in schema.items():
            if name == "$ref" and isinstance(part, str):
                yield part
            elif definitions or name not in _DEFINITIONS:
                yield from _references(part)


def google_schema(schema: Schema) -> tuple[Schema, list[str]]:
    """Return a schema as Google takes it, and the keywords in it that an answer is not bound to.

    A constant becomes an enumeration of one; what stands beside a reference, which Google refuses, stands around it.
    """
    unbound: dict[str, None] = {}
    return _googles(schema, unbound), list(unbound)


def _googles(schema: Any, unbound: dict[str, None]) -> Any:
    if not isinstance(schema, dict):
        return schema
    wire: Schema = {}
    for name, value in schema.items():
        if name in _NAMED_PARTS and isinstance(value, dict):
            wire[name] = {key: _googles(part, unbound) for key, part in value.items()}
        elif name in _PARTS:
            wire[name] = _googles(value, unbound)
        elif name in _LISTED_PARTS and isinstance(value, list):
            wire[name] = [_googles(part, unbound) for part in value]
        elif name == "const" and isinstance(value, str | int | float) and not isinstance(value, bool):
            wire["enum"] = [value]
        elif name not in _REMARKS:
            wire[name] = value
        if name not in _GOOGLES and name not in _REMARKS and name not in ("const", "definitions"):
            unbound[name] = None
    beside = {name: value for name, value in wire.items() if not name.startswith("$")}
    if "$ref" in wire and beside:
        kept = {name: value for name, value in wire.items() if name.startswith("$") and name != "$ref"}
        return {**kept, **beside, "anyOf": [{"$ref": wire["$ref"]}]}
    return wire


_NAME = "final_answer"
_PURPOSE = "Give the final answer with this tool, and only with it."
_VALUE = "value"
_ROOT = "#"


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
