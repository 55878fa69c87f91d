"""Google generateContent, client side: reads a request body into a canonical chat, and writes the request for the log.

Errors name the field. The path states the model and whether the answer is streamed. Unknown fields are kept.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    Source,
    Target,
    Tool,
    ToolChoice,
    WebSearchTool,
)
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, object_root
from apps.gateway.dialects.adapting.unsupported_fields import kind_of
from apps.gateway.dialects.chat.google.client import camel_cased
from apps.gateway.dialects.chat.google.client.read_contents import brings_carriers, read_contents, read_instruction
from apps.gateway.dialects.chat.google.provider.write_request import write_fields
from apps.gateway.dialects.chat.google.wire import NAME, SIGNATURE_FORMAT, encode
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    filled_string,
    integer,
    list_of,
    number,
    one_of,
    optional,
    record,
    required,
    string,
)

# Far beyond any model's.
MAX_TOOLS = 1_000
FUNCTIONS, SEARCH = "functionDeclarations", "googleSearch"
_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
_CHOICE_FIELDS = frozenset({"mode", "allowedFunctionNames"})
_MODES = {"MODE_UNSPECIFIED": None, "AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}


def read_tools(value: Any) -> list[Tool]:
    """Read `tools`: each entry may be many functions and several tools of Google's."""
    entries = [value] if isinstance(value, dict) else value
    tools = [tool for entry in _entries(entries) for tool in entry]
    if len(tools) > MAX_TOOLS:
        raise Malformed(f"must hold at most {MAX_TOOLS} tools")
    return tools


def _entry(value: Any) -> list[Tool]:
    wire = record(value)
    declared = wire.get(FUNCTIONS)
    tools: list[Tool] = []
    if declared is not None:
        tools.extend(fields.within(FUNCTIONS, _functions, [declared] if isinstance(declared, dict) else declared))
    for name, value in wire.items():
        if name == SEARCH and value is not None:
            tools.append(WebSearchTool(extra=fields.within(name, record, value) or None))
        elif name != FUNCTIONS and value is not None:
            tools.append(OpaqueTool(dialect=NAME, data={name: fields.within(name, _anything, value)}))
    return tools


def _anything(value: Any) -> Any:
    return value if isinstance(value, list) else record(value)


def _function(value: Any) -> FunctionTool:
    wire = record(value)
    schema = optional(wire, "parametersJsonSchema", record)
    stated = optional(wire, "parameters", record)
    if schema is not None and stated is not None:
        raise Malformed("contradicts parametersJsonSchema", "parameters")
    if schema is not None:
        schema = ordered(schema)
    if stated is not None:
        # A call always has an object of arguments, be it an empty one.
        schema = json_schema_of({name: value for name, value in stated.items() if name != "nullable"})
    try:
        object_root(schema)
    except UnsupportedSchema:
        raise Malformed("must be of the type object", "parameters" if stated else "parametersJsonSchema") from None
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=schema,
        extra=fields.rest_of(wire, _FUNCTION_FIELDS),
    )


def read_tool_config(value: Any) -> tuple[ToolChoice | None, Record | None]:
    """Read `toolConfig`: the choice among functions, and what else it says."""
    wire = record(value)
    choice, rest = optional(wire, "functionCallingConfig", _choice) or (None, None)
    others = fields.rest_of(wire, frozenset({"functionCallingConfig"})) or {}
    if rest:
        others["functionCallingConfig"] = rest
    return choice, others or None


def _choice(value: Any) -> tuple[ToolChoice | None, Record | None]:
    wire = record(value)
    word = optional(wire, "mode", one_of(*_MODES)) or "MODE_UNSPECIFIED"
    names = optional(wire, "allowedFunctionNames", _names) or []
    rest = fields.rest_of(wire, _CHOICE_FIELDS) or {}
    mode: Any = _MODES[word]
    if word == "VALIDATED" and not names:
        return None, {**rest, "mode": word}
    if mode is None:
        return None, rest or None
    if mode == "required" and len(names) == 1:
        return ToolChoice(mode="named", name=names[0]), rest or None
    return ToolChoice(mode=mode, allowed=() if mode == "none" else tuple(names)), rest or None


_functions = list_of(_function, MAX_TOOLS)
_names = list_of(filled_string, MAX_TOOLS)
_entries = list_of(_entry, MAX_TOOLS)


def tool_path(tool: Tool) -> str:
    """Return where the client finds a tool: one entry of `tools` may hold many."""
    if isinstance(tool, OpaqueTool):
        return f"tools.{kind_of(tool.data)}"
    return "tools.functionDeclarations" if isinstance(tool, FunctionTool) else "tools.googleSearch"


_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_RENAMED = {"ref": "$ref", "defs": "$defs"}
_NAMED_PARTS = frozenset({"properties", "defs", "$defs", "definitions", "patternProperties"})
_PARTS = frozenset({"items", "additionalProperties"})
_LISTED_PARTS = frozenset({"anyOf", "prefixItems"})
_ORDER = "propertyOrdering"
# Keywords that only order fields, or have no effect.
_LEFT_OUT = frozenset({"nullable", _ORDER})
# Values, in which nothing is a keyword.
_VALUES = frozenset({"enum", "const", "default", "example", "examples"})


def json_schema_of(schema: Record) -> Record:
    """Return a schema as JSON Schema; models write fields in the order of `propertyOrdering`."""
    wire: Record = {}
    for name, value in schema.items():
        if value is None or name in _LEFT_OUT:
            continue
        renamed = _renamed_value(name, value)
        if renamed is not None:
            wire[_RENAMED.get(name, name)] = renamed
    _put_in_order(wire, schema.get(_ORDER))
    return _nullable(wire) if schema.get("nullable") is True else wire


def ordered(schema: Record) -> Record:
    """Return a JSON Schema with fields in the order of `propertyOrdering`, and without that keyword of Google's:
    other providers refuse schemas with keywords that they do not know."""
    wire = {name: _ordered(name, value) for name, value in schema.items() if name != _ORDER}
    _put_in_order(wire, schema.get(_ORDER))
    return wire


def _ordered(name: str, value: Any) -> Any:
    if name in _VALUES:
        return value
    if isinstance(value, list):
        return [ordered(part) if isinstance(part, dict) else part for part in value]
    if not isinstance(value, dict):
        return value
    if name in _NAMED_PARTS:
        return {key: ordered(part) if isinstance(part, dict) else part for key, part in value.items()}
    return ordered(value)


def _put_in_order(wire: Record, order: Any) -> None:
    properties = wire.get("properties")
    if isinstance(order, list) and isinstance(properties, dict):
        first = {name: properties[name] for name in order if isinstance(name, str) and name in properties}
        wire["properties"] = {**first, **properties}


def _renamed_value(name: str, value: Any) -> Any:
    """Return the value of a keyword; None for one that says nothing in JSON Schema."""
    if name == "type" and isinstance(value, str):
        return None if value == "TYPE_UNSPECIFIED" else value.lower()
    if name in _COUNTS and isinstance(value, str) and value.isdecimal():
        return int(value[:18])
    if name in _NAMED_PARTS and isinstance(value, dict):
        return {key: _part(inner) for key, inner in value.items()}
    if name in _PARTS:
        return _part(value)
    if name in _LISTED_PARTS and isinstance(value, list):
        return [_part(inner) for inner in value]
    # OpenAPI's word for a text that is one of `enum`.
    return None if name == "format" and value == "enum" else value


def _part(value: Any) -> Any:
    return json_schema_of(value) if isinstance(value, dict) else value


def _nullable(wire: Record) -> Record:
    kind = wire.get("type")
    if isinstance(kind, str):
        allowed: Record = {"type": [kind, "null"]}
        if isinstance(values := wire.get("enum"), list) and None not in values:
            allowed["enum"] = [*values, None]
        return {**wire, **allowed}
    if isinstance(variants := wire.get("anyOf"), list):
        return {**wire, "anyOf": [*variants, {"type": "null"}]}
    return wire


MAX_STOPS, MAX_LISTED = 1_000, 100
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MAX_TOKENS = 1_000_000_000
JSON, PLAIN = "application/json", "text/plain"
_LEVELS = ("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
_IMAGE_OPTIONS = {"aspectRatio": "aspect_ratio", "imageSize": "image_size"}
_THINKING_FIELDS = frozenset({"includeThoughts", "thinkingBudget", "thinkingLevel"})
_FORM_FIELDS = ("responseMimeType", "responseSchema", "responseJsonSchema")


def read_config(value: Any) -> tuple[Record, Record | None]:
    """Return the fields of a canonical chat that a `generationConfig` says, and the fields that it has no word for."""
    wire = record(value)
    known: Record = {}
    rest: Record = {}
    for name, value in wire.items():
        if value is None or name in _FORM_FIELDS:
            continue
        if name in _PLAIN:
            field, read = _PLAIN[name]
            known[field] = fields.within(name, read, value)
        elif name in _PARTLY:
            field, read_partly = _PARTLY[name]
            known[field], left = fields.within(name, read_partly, value)
            if left:
                rest[name] = left
        else:
            rest[name] = value
    known["response_format"], left = _form(wire)
    rest |= left
    return {name: value for name, value in known.items() if value is not None}, rest or None


def _form(wire: Record) -> tuple[ResponseFormat | None, Record]:
    """Read the form that the answer must have, from the three fields that say it."""
    media_type = optional(wire, "responseMimeType", string) or ""
    stated = optional(wire, "responseSchema", record)
    schema = optional(wire, "responseJsonSchema", record)
    if stated is not None and schema is not None:
        raise Malformed("contradicts responseJsonSchema", "responseSchema")
    if schema is not None:
        schema = ordered(schema)
    if stated is not None:
        schema = json_schema_of(stated)
    if media_type == JSON:
        if schema is None:
            return ResponseFormat(kind="json_object"), {}
        return ResponseFormat(kind="json_schema", name="answer", schema=schema), {}
    # `text/x.enum`, and whatever else only Google knows.
    left = {name: wire[name] for name in _FORM_FIELDS if wire.get(name) is not None}
    return None, {} if media_type in ("", PLAIN) and schema is None else left


def _thinking(value: Any) -> tuple[ReasoningRequest, Record | None]:
    """Read how much to think, and whether it is shown. A budget of -1 leaves the former to the model."""
    wire = record(value)
    budget = optional(wire, "thinkingBudget", integer(-1, MAX_TOKENS))
    level = optional(wire, "thinkingLevel", _level)
    shown = optional(wire, "includeThoughts", boolean) is True
    effort: Any = None
    if level not in (None, _LEVELS[0]):
        effort = level.lower()
    if budget == 0:
        effort = "none"
    tokens = budget if budget is not None and budget > 0 else None
    asked = ReasoningRequest(effort=effort if tokens is None else None, max_tokens=tokens, exclude=not shown)
    return asked, fields.rest_of(wire, _THINKING_FIELDS)


def _level(value: Any) -> Any:
    return one_of(*_LEVELS)(value.upper() if isinstance(value, str) else value)


def _image_config(value: Any) -> tuple[Record | None, Record | None]:
    wire = record(value)
    known = {_IMAGE_OPTIONS[name]: optional(wire, name, string) for name in _IMAGE_OPTIONS}
    stated = {name: value for name, value in known.items() if value is not None}
    return stated or None, fields.rest_of(wire, frozenset(_IMAGE_OPTIONS))


def _modalities(value: Any) -> list[str]:
    return [modality.lower() for modality in _words(value)]


_words = list_of(string, MAX_LISTED)
_PLAIN: dict[str, tuple[str, Reader[Any]]] = {
    "temperature": ("temperature", number(0, 2)),
    "topP": ("top_p", number(0, 1)),
    "topK": ("top_k", integer(0, MAX_TOKENS)),
    "candidateCount": ("n", integer(1, 128)),
    "maxOutputTokens": ("max_tokens", integer(1, MAX_TOKENS)),
    "stopSequences": ("stop", list_of(string, MAX_STOPS)),
    "seed": ("seed", integer(-(2**31), 2**31 - 1)),
    "presencePenalty": ("presence_penalty", number(-2, 2)),
    "frequencyPenalty": ("frequency_penalty", number(-2, 2)),
    "responseLogprobs": ("logprobs", boolean),
    "logprobs": ("top_logprobs", integer(0, 20)),
    "responseModalities": ("modalities", _modalities),
}
_PARTLY: dict[str, tuple[str, Reader[tuple[Any, Record | None]]]] = {
    "thinkingConfig": ("reasoning", _thinking),
    "imageConfig": ("image_config", _image_config),
}


MAX_MODEL = 512
# Text that models read; it may be as long as a body.
_CONVERSATION = frozenset({"contents", "systemInstruction", "tools", "generationConfig"})
# The placeholder for a model that is named elsewhere.
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
    """Put the fields together. Members that the canonical model lacks are kept under the field's name."""
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


_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_FORM = ("responseMimeType", "responseSchema", "responseJsonSchema")
# A model that takes whatever its format can say.
_EVERYTHING = {"reasoning_budget": {}, "takes": ["search_with_tools"]}
_LOGGED_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    The system instruction, which this format has beside the contents, is the first of the messages. Raises
    InvalidRequest for what the format cannot express, which never happens to a chat that was read from it.
    """
    body = chat.source.body if chat.source is not None and chat.source.dialect == NAME else _written(chat)
    wire: Record = {name: raw for name, raw in _read_fields(body).items() if raw != _NULL}
    messages: Any = wire["contents"]
    if "systemInstruction" in wire:
        contents = _raw_contents(messages)
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
    config: Record = {"mode": "VALIDATED" if choice.mode == "auto" and names else _LOGGED_MODES[choice.mode]}
    return {"functionCallingConfig": {**config, **({"allowedFunctionNames": names} if names else {})}}


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what functions answered: parts of the user's contents."""
    contents = [content for content in messages if isinstance(content, dict)]
    parts = [part for content in contents for part in _listed(content.get("parts"))]
    return [part for part in parts if isinstance(part, dict) and "functionResponse" in part]


def _raw_contents(contents: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(contents, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return [contents]


def _listed(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as Google takes it: the only one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _instruction(raw: msgspec.Raw) -> Record:
    instruction = msgspec.json.decode(raw)
    return {"parts": instruction["parts"]} if isinstance(instruction, dict) else {"parts": [{"text": instruction}]}


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
