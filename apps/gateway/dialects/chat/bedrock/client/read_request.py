"""Bedrock Converse, client side: reads a request body into a canonical chat, and writes the request for the log.

Refusals name the field. The path states the model and whether the answer is streamed. Fields of a model's own that have
a meaning here (`top_k`, thinking, efforts) are read in the forms of every maker; the others are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    DroppedField,
    Effort,
    FunctionTool,
    Message,
    OpaqueTool,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    Source,
    Target,
    Tool,
    ToolChoice,
)
from apps.gateway.dialects.chat.anthropic.client.read_request import read_tool_choice
from apps.gateway.dialects.chat.anthropic.wire import SIGNATURE_FORMAT
from apps.gateway.dialects.chat.bedrock.client.read_messages import (
    CACHE_POINT,
    brings_carriers,
    marked,
    read_cache_point,
    read_messages,
    read_system,
)
from apps.gateway.dialects.chat.bedrock.provider.write_request import write_request
from apps.gateway.dialects.chat.bedrock.wire import MAX_LABELS, NAME, refused
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    BOUNDS,
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
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.kernel.json_bounds import decode_text_within

# Far beyond any model's.
MAX_TOOLS, MAX_STOPS, MAX_MODEL, MAX_BETAS = 1_000, 2_500, 512, 100
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MAX_TOKENS = 1_000_000_000
# Text that models read; it may be as long as a body.
_CONVERSATION = frozenset({"messages", "system", "toolConfig", "outputConfig"})
# The placeholder for a model that is named elsewhere.
_UNNAMED = "-"
_MODEL_FIELDS, _INFERENCE = "additionalModelRequestFields", "inferenceConfig"
_OUTPUT, _TOOLS = "outputConfig", "toolConfig"
_EFFORTS = frozenset(get_args(Effort))
# The efforts that a chat has beside thinking.
_PLAIN_EFFORTS = _EFFORTS - {"none", "minimal"}


def read_request(body: bytes, model: str = _UNNAMED, *, stream: bool = False) -> Chat:
    """Return the chat that a body asks a model for. Raises InvalidRequest (`invalid_json`, `invalid_parameters`,
    `unsupported_feature`)."""
    if not 0 < len(model) <= MAX_MODEL:
        raise Malformed(f"must have 1 to {MAX_MODEL} characters", "modelId").as_error()
    chat = fields.read_body(body, _CONVERSATION, lambda wire: _read(wire, model, stream=stream))
    if not brings_carriers(chat.messages):
        chat.source = Source(dialect=NAME, body=body)
    return chat


def _read(wire: Record, model: str, *, stream: bool) -> Chat:
    """Put the fields together. Members that the canonical language lacks are kept under the field's name."""
    known, extra = fields.read_known(wire, _FIELDS)
    if "messages" not in known:
        raise Malformed("Required", "messages")
    chosen: Record = {"messages": known["messages"]}
    if system := known.get("system"):
        chosen["messages"] = [Message(role="system", parts=system), *known["messages"]]
    for name in (_INFERENCE, _TOOLS, _MODEL_FIELDS, _OUTPUT):
        meaning, rest = known.get(name, ({}, None))
        if "tool_choice" in meaning and "tool_choice" in chosen:
            raise Malformed("contradicts toolConfig.toolChoice", f"{name}.tool_choice")
        chosen |= meaning
        if rest:
            extra[name] = rest
    for name, field in (("requestMetadata", "metadata"), ("serviceTier", "service_tier")):
        if known.get(name) is not None:
            chosen[field] = known[name]
    take_router_fields(extra, chosen)
    if known.get("performanceConfig") == "optimized":
        why = "answers of lower latency at a higher price are not available here"
        chosen["dropped_fields"] = [*chosen.get("dropped_fields", ()), DroppedField("performanceConfig.latency", why)]
    return Chat(model=model, stream=stream, extra=extra or None, dialect=NAME, **chosen)


def _known_and_rest(value: Any, readers: dict[str, Reader[Any]]) -> tuple[Record, Record | None]:
    """Return the canonical fields that an object's members mean, and the members without a meaning. A reader returns
    the fields; None for a value that only the model's maker understands."""
    known: Record = {}
    rest: Record = {}
    for name, member in record(value).items():
        if member is None:
            continue
        meaning = fields.within(name, readers[name], member) if name in readers else None
        if meaning is None:
            rest[name] = member
        else:
            known |= meaning
    return known, rest or None


def _as(field: str, read: Reader[Any]) -> Reader[Record]:
    """Return the reader of a value that is one field of the canonical language."""
    return lambda value: {field: read(value)}


_SAMPLING: dict[str, Reader[Any]] = {
    "maxTokens": _as("max_tokens", integer(1, MAX_TOKENS)),
    "temperature": _as("temperature", number(0, 1)),
    "topP": _as("top_p", number(0, 1)),
    "stopSequences": _as("stop", list_of(filled_string, MAX_STOPS)),
}


def _inference(value: Any) -> tuple[Record, Record | None]:
    return _known_and_rest(value, _SAMPLING)


def _spec(value: Any) -> FunctionTool:
    wire = record(value)
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=required(wire, "inputSchema", fields.union({"json": record})),
        strict=optional(wire, "strict", boolean),
        extra=fields.rest_of(wire, frozenset({"name", "description", "inputSchema", "strict"})),
    )


def _system_tool(value: Any) -> OpaqueTool:
    return OpaqueTool(dialect=NAME, data={"systemTool": {"name": required(record(value), "name", filled_string)}})


_entries = list_of(
    fields.union({"toolSpec": _spec, "systemTool": _system_tool, CACHE_POINT: read_cache_point}), MAX_TOOLS
)


def _tools(value: Any) -> Record:
    return {"tools": marked(_entries(value)) or None}


def _named(value: Any) -> ToolChoice:
    return ToolChoice(mode="named", name=required(record(value), "name", filled_string))


_choice: Reader[ToolChoice] = fields.union(
    {
        "auto": lambda value: ToolChoice(mode="auto"),
        "any": lambda value: ToolChoice(mode="required"),
        "tool": _named,
    }
)


def _tool_config(value: Any) -> tuple[Record, Record | None]:
    known, rest = _known_and_rest(value, {"tools": _tools, "toolChoice": _as("tool_choice", _choice)})
    if "tools" not in known:
        raise Malformed("Required", "tools")
    return known, rest


def _thinking(value: Any) -> Record | None:
    """Read how much to think: not at all, or a stated budget. `adaptive`, which leaves it to the model, stays."""
    if isinstance(value, str):
        return _effort(value)
    wire = record(value)
    kind = required(wire, "type", filled_string)
    if kind == "disabled":
        return {"reasoning": ReasoningRequest(effort="none")}
    if kind != "enabled":
        return None
    budget = required(wire, "budget_tokens", integer(1, MAX_TOKENS))
    return {
        "reasoning": ReasoningRequest(max_tokens=budget, exclude=True if wire.get("display") == "omitted" else None)
    }


def _effort(value: Any) -> Record | None:
    known: Any = value if isinstance(value, str) and value in _EFFORTS else None
    return None if known is None else {"reasoning": ReasoningRequest(effort=known)}


def _nested_effort(value: Any) -> Record | None:
    wire = record(value)
    return _effort(wire["effort"]) if wire.keys() == {"effort"} else None


def _nova_effort(value: Any) -> Record | None:
    wire = record(value)
    return _effort("none" if wire.get("type") == "disabled" else wire.get("maxReasoningEffort"))


def _beside_thinking(value: Any) -> Record | None:
    """Read Anthropic's `output_config`, where it states nothing but an effort."""
    wire = record(value)
    effort = wire.get("effort")
    is_effort = wire.keys() == {"effort"} and isinstance(effort, str) and effort in _PLAIN_EFFORTS
    return {"effort": effort} if is_effort else None


def _nova_inference(value: Any) -> Record | None:
    wire = record(value)
    return {"top_k": required(wire, "topK", integer(0, MAX_TOKENS))} if wire.keys() == {"topK"} else None


def _native_choice(value: Any) -> Record:
    choice, parallel = read_tool_choice(value)
    return {"tool_choice": choice, **({} if parallel is None else {"parallel_tool_calls": parallel})}


_MODEL_READERS: dict[str, Reader[Any]] = {
    "thinking": _thinking,
    "reasoning_config": _thinking,
    "reasoning_effort": _effort,
    "reasoning": _nested_effort,
    "reasoningConfig": _nova_effort,
    "output_config": _beside_thinking,
    "top_k": _as("top_k", integer(0, MAX_TOKENS)),
    "inferenceConfig": _nova_inference,
    "tool_choice": _native_choice,
    "anthropic_beta": _as("betas", list_of(filled_string, MAX_BETAS)),
}


def _model_fields(value: Any) -> tuple[Record, Record | None]:
    """Read the fields of a model's own. An effort beside `adaptive` thinking is how much to think."""
    known, rest = _known_and_rest(value, _MODEL_READERS)
    thinking = (rest or {}).get("thinking")
    if isinstance(thinking, dict) and thinking == {"type": "adaptive"} and "effort" in known:
        known["reasoning"] = ReasoningRequest(effort=known.pop("effort"))
        rest = {name: member for name, member in (rest or {}).items() if name != "thinking"} or None
    return known, rest


def unread_model_fields(value: Record) -> Iterator[str]:
    """Yield the paths of fields of the model's own that are not read. Other models decide how much they think anyway,
    which is all that `adaptive` says."""
    for name, member in value.items():
        if name != "thinking" or not isinstance(member, dict) or member.get("type") != "adaptive":
            yield f"{_MODEL_FIELDS}.{name}"


def _schema(value: Any) -> Record:
    try:
        schema = decode_text_within(string(value), BOUNDS)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Malformed("must be JSON") from None
    return record(schema)


def _definition(value: Any) -> ResponseFormat:
    wire = record(value)
    return ResponseFormat(
        kind="json_schema",
        name=optional(wire, "name", string) or "answer",
        description=optional(wire, "description", string) or None,
        schema=required(wire, "schema", _schema),
    )


def _text_format(value: Any) -> Record:
    wire = record(value)
    required(wire, "type", one_of("json_schema"))
    return {"response_format": required(wire, "structure", fields.union({"jsonSchema": _definition}))}


def _output_effort(value: Any) -> Record | None:
    return {"effort": value} if isinstance(value, str) and value in _PLAIN_EFFORTS else None


def _output_config(value: Any) -> tuple[Record, Record | None]:
    return _known_and_rest(value, {"textFormat": _text_format, "effort": _output_effort})


def _labels(value: Any) -> dict[str, str]:
    wire = record(value)
    if len(wire) > MAX_LABELS:
        raise Malformed(f"must hold at most {MAX_LABELS} labels")
    return {name: fields.within(name[: fields.MAX_QUOTED_NAME], string, label) for name, label in wire.items()}


def _tier(value: Any) -> str:
    return str(required(record(value), "type", filled_string))


def _latency(value: Any) -> str | None:
    return optional(record(value), "latency", one_of("standard", "optimized"))


def _no_guardrail(value: Any) -> None:
    if record(value):
        raise refused(
            "Guardrails of AWS are not available here, so nothing was sent; the gateway's own guardrails apply",
            "guardrailConfig",
        )


def _no_prompt(value: Any) -> None:
    if record(value):
        raise refused("Prompts are not kept here: send the messages", "promptVariables")


_FIELDS: dict[str, Reader[Any]] = {
    "messages": read_messages,
    "system": read_system,
    _INFERENCE: _inference,
    _TOOLS: _tool_config,
    _MODEL_FIELDS: _model_fields,
    _OUTPUT: _output_config,
    "requestMetadata": _labels,
    "serviceTier": _tier,
    "performanceConfig": _latency,
    "guardrailConfig": _no_guardrail,
    "promptVariables": _no_prompt,
}

_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode
# A model that takes whatever its format can say.
_EVERYTHING: Record = {
    "reasoning_form": "thinking",
    "takes": ["cache_points", "cache_tools", "cache_1h", "top_k", "strict", "tool_choice", "citations"],
    "structured_outputs": "native",
}
_MODES = {"auto": "auto", "none": "none", "required": "any"}


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    The instructions, which this format has beside the messages, are the first of them. Raises InvalidRequest for what
    the format cannot express, which never happens to a chat that was read from it.
    """
    body = chat.source.body if chat.source is not None and chat.source.dialect == NAME else _written(chat)
    wire = _members(body)
    logged: Record = {"messages": wire["messages"]}
    if "system" in wire:
        logged["messages"] = [{"role": "system", "content": wire["system"]}, *_read_entries(wire["messages"])]
    config = _members(wire[_TOOLS]) if _TOOLS in wire else {}
    names = (("tools", "tools"), ("toolChoice", "tool_choice"))
    logged |= {field: config[name] for name, field in names if name in config}
    output = _members(wire[_OUTPUT]) if _OUTPUT in wire else {}
    return {**logged, "response_format": output["textFormat"]} if "textFormat" in output else logged


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as `toolChoice`: names, and nothing that a client could hide in it."""
    return {"tool": {"name": choice.name}} if choice.mode == "named" else {_MODES[choice.mode]: {}}


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: blocks of users' messages."""
    contents = [content for message in messages if isinstance(content := message.get("content"), list)]
    return [block for content in contents for block in content if isinstance(block, dict) and "toolResult" in block]


def tool_path(tool: Tool) -> str:
    """Return where the client finds a tool: cache points stand between them."""
    return f"{_TOOLS}.tools"


def _members(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    return {name: value for name, value in _read_fields(raw).items() if value != _NULL}


def _written(chat: Chat) -> bytes:
    messages = [_with_all_thinking(message) for message in chat.messages]
    asked = replace(chat, messages=messages, source=None)
    return write_request(asked, Target(model_name=chat.model, facts=_EVERYTHING))


def _with_all_thinking(message: Message) -> Message:
    """Return a message with its thinking, including thinking that another maker signed."""
    return replace(message, parts=[_signed(part) for part in message.parts])


def _signed(part: Part) -> Part:
    if not isinstance(part, Reasoning):
        return part
    return replace(part, signature=part.signature or "", format=SIGNATURE_FORMAT)
