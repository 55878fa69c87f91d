"""Bedrock Converse, provider side: writes a canonical chat as a request body, for an answer or for a count of tokens.

Unsupported sampling fields and hints are dropped with a note; a field that would change the shape of the answer is
refused before anything is sent.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    Effort,
    FunctionTool,
    OpaqueTool,
    Reasoning,
    ResponseFormat,
    Target,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from apps.gateway.dialects.adapting.emulated_tools import adapt_tool_names
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import (
    UnsupportedSchema,
    add_structured_output_tool,
    close_schema,
    object_root,
)
from apps.gateway.dialects.adapting.thinking import effort_of, nearest_known_effort
from apps.gateway.dialects.adapting.unsupported_fields import (
    kind_of,
    note_dropped,
    note_unsupported_fields,
    note_unsupported_hints,
    repair_tool_results,
    tool_path,
    unsupported_feature,
)
from apps.gateway.dialects.chat.anthropic import wire as anthropic_wire
from apps.gateway.dialects.chat.anthropic.provider import write_messages as anthropic_messages
from apps.gateway.dialects.chat.anthropic.provider import write_request as anthropic_request
from apps.gateway.dialects.chat.anthropic.provider.write_messages import drop_thinking
from apps.gateway.dialects.chat.bedrock.provider.write_messages import Blocks, write_messages
from apps.gateway.dialects.chat.bedrock.wire import (
    MAX_LABELS,
    NAME,
    STREAM_TYPE,
    Capabilities,
    capabilities_of,
    encode,
    refused,
    without_none,
)
from apps.gateway.dialects.chat.google.provider.write_contents import merged
from apps.gateway.dialects.reading.fields import Record

# The limit that is required beside a budget, when neither the client nor the data file states one.
_UNSTATED_LIMIT = 4_096
_THINKS = ("enabled", "adaptive")
_SAMPLING = ("temperature", "top_p", "top_k")


def write_thinking(
    chat: Chat, target: Target, capabilities: Capabilities, sampling: Record, messages: list[Record], *, forced: bool
) -> tuple[Record, int | None]:
    """Return the fields for the model, and the limit on its answer.

    `forced` says that a tool must be called. Fields of `sampling` that are refused beside thinking are removed.
    """
    asked = chat.reasoning
    effort = asked.effort if asked is not None and asked.effort is not None else chat.effort
    budget = asked.max_tokens if asked is not None else None
    if capabilities.signs_thinking:
        return _as_anthropic(chat, target, sampling, messages, forced=forced)
    if effort is None and budget is not None:
        effort = effort_of(budget)
        note_dropped(chat, target, "reasoning.max_tokens", f"the model takes no budget: taken for the effort {effort}")
    if effort is None:
        return {}, chat.max_tokens
    if capabilities.reasoning_form is None:
        if effort != "none":
            note_dropped(chat, target, "reasoning_effort", "how much this model thinks cannot be said")
        return {}, chat.max_tokens
    return _as_effort(effort, chat, target, capabilities), chat.max_tokens


def _as_anthropic(
    chat: Chat, target: Target, sampling: Record, messages: list[Record], *, forced: bool
) -> tuple[Record, int | None]:
    """Return Anthropic's own fields; as a client of Anthropic's format wrote them where it did."""
    wire: Record = {
        **{name: sampling[name] for name in _SAMPLING if name in sampling},
        "max_tokens": chat.max_tokens or target.max_output or _UNSTATED_LIMIT,
        "messages": messages,
    }
    if forced:
        wire["tool_choice"] = {"type": "any"}
    own_fields = (chat.extra or {}) if chat.dialect == anthropic_wire.NAME else {}
    if isinstance(own := own_fields.get("thinking"), dict):
        return _own_words(own, own_fields.get("output_config"), wire, chat, target), chat.max_tokens
    anthropic_request.write_thinking(wire, chat, target)
    for name in _SAMPLING:
        if name not in wire:
            sampling.pop(name, None)
    fields: Record = {name: wire[name] for name in ("thinking", "output_config") if name in wire}
    drop_thinking(fields, chat, target)
    # Unsaid, the limit is a small one, in which thinking counts.
    stated = chat.max_tokens or target.max_output or fields
    return fields, wire["max_tokens"] if stated else None


def _own_words(thinking: Record, output: object, wire: Record, chat: Chat, target: Target) -> Record:
    """Return the client's own fields; no thinking beside a call that the model is now made to make."""
    thinks = thinking.get("type") in _THINKS
    if target.rewrites.hidden_tool is not None and thinks and (obstacle := anthropic_request.obstacle_of(wire)):
        note_dropped(chat, target, "reasoning", f"no thinking beside {obstacle}")
        return {}
    effort = output.get("effort") if isinstance(output, dict) else None
    fields: Record = {"thinking": thinking}
    drop_thinking(fields, chat, target)
    return fields if effort is None else {**fields, "output_config": {"effort": effort}}


def _as_effort(effort: Effort, chat: Chat, target: Target, capabilities: Capabilities) -> Record:
    """Return an effort as the model's maker has it."""
    form = str(capabilities.reasoning_form)
    if form == "reasoningConfig" and effort == "none":
        return {form: {"type": "disabled"}}
    word = nearest_known_effort(effort, chat, target)
    if form == "reasoningConfig":
        return {form: {"type": "enabled", "maxReasoningEffort": word}}
    return {form: {"effort": word} if form == "reasoning" else word}


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


_ANY_OBJECT: Record = {"type": "object", "properties": {}}
_NATIVE = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}


class Choices(Struct, frozen=True, kw_only=True):
    """A chat's tools on the wire: `toolConfig`, fields for the model itself, and whether a tool must be called."""

    config: Record | None = None
    fields: Record = {}
    forced: bool = False


def write_tools(chat: Chat, blocks: Blocks, target: Target, capabilities: Capabilities) -> Choices:
    """Return how tools are offered. Raises InvalidRequest for an unsupported choice among them.

    A model that may call none gets no tools, unless the conversation has calls: Bedrock requires tools beside these.
    """
    choice = chat.tool_choice or ToolChoice(mode="auto")
    tools = _offered(chat, choice, blocks, target, capabilities)
    remembered = _remembered(chat)
    if choice.mode == "none" and not remembered:
        return Choices()
    if not tools:
        return Choices(config={"tools": remembered}) if remembered else Choices()
    config: Record = {"tools": tools}
    forced = choice.mode in {"required", "named"}
    if choice.mode == "none" or chat.parallel_tool_calls is False:
        return Choices(config=config, fields=_native(choice, chat, capabilities), forced=forced)
    if chat.tool_choice is not None:
        config["toolChoice"] = _choice(choice)
    return Choices(config=config, forced=forced)


def _offered(
    chat: Chat, choice: ToolChoice, blocks: Blocks, target: Target, capabilities: Capabilities
) -> list[Record]:
    """Return the client's tools, those alone that the choice leaves."""
    if chat.web_search:
        raise unsupported_feature(chat, "web_search", "This model's provider has no web search")
    offered: list[Record] = []
    for number, tool in enumerate(chat.tools or ()):
        at = tool_path(chat, number)
        spec = _spec(tool, at, target, capabilities)
        if not choice.allowed or (isinstance(tool, FunctionTool) and tool.name in choice.allowed):
            offered += [spec, *blocks.mark(tool.cache, spec, at, "cache_tools")]
    return offered


def _spec(tool: Tool, at: str, target: Target, capabilities: Capabilities) -> Record:
    if not isinstance(tool, FunctionTool):
        kind = kind_of(tool.data) if isinstance(tool, OpaqueTool) else "web_search"
        raise refused(f"{kind} is a tool that this model's provider does not have", at)
    spec: Record = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    try:
        schema = object_root(tool.parameters)
    except UnsupportedSchema:
        raise refused("A function's parameters must be an object for this model's provider", at) from None
    bound = _bound(schema, at, target, capabilities) if tool.strict else None
    spec["inputSchema"] = {"json": schema if bound is None else bound}
    if bound is not None:
        spec["strict"] = True
    return {"toolSpec": spec}


def _bound(schema: Record, at: str, target: Target, capabilities: Capabilities) -> Record | None:
    """Return a schema that arguments can be bound to; None where the model binds to none, or not to this one."""
    try:
        bound, left_out = close_schema(schema) if "strict" in capabilities.takes else (None, ["the schema"])
    except UnsupportedSchema:
        bound, left_out = None, ["the schema"]
    if left_out:
        target.note_dropped(f"{at}.strict", f"the arguments are not bound to {', '.join(left_out)}")
    return bound


def _remembered(chat: Chat) -> list[Record]:
    """Return the least that must be declared of the tools that were called before: Bedrock insists on them."""
    parts = [part for message in chat.messages for part in message.parts]
    names = dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall))
    if not names and any(isinstance(part, ToolResult) for part in parts):
        names = {"tool": None}
    return [{"toolSpec": {"name": name, "inputSchema": {"json": _ANY_OBJECT}}} for name in names]


def _choice(choice: ToolChoice) -> Record:
    if choice.mode == "named":
        return {"tool": {"name": choice.name}}
    return {"any": {}} if choice.mode == "required" else {"auto": {}}


def _native(choice: ToolChoice, chat: Chat, capabilities: Capabilities) -> Record:
    """Return a choice that the format has no word for, in the words that Anthropic's models have: instead of
    Bedrock's, which they refuse beside them."""
    if "tool_choice" not in capabilities.takes:
        if choice.mode == "none":
            raise unsupported_feature(
                chat, "tool_choice", "This model's provider has no way to forbid calls of tools that it called before"
            )
        raise unsupported_feature(
            chat, "parallel_tool_calls", "This model's provider has no way to call one tool at a time"
        )
    wire: Record = {"type": _NATIVE[choice.mode]}
    if choice.mode == "named":
        wire["name"] = choice.name
    if chat.parallel_tool_calls is False and choice.mode != "none":
        wire["disable_parallel_tool_use"] = True
    return {"tool_choice": wire}


_CHOOSING = ("temperature", "top_p", "top_k")


def sampling_of(chat: Chat, target: Target, capabilities: Capabilities) -> Record:
    """Return the sampling fields that the model supports, by their canonical names; note the others as dropped."""
    sampling = without_none(
        temperature=chat.temperature,
        top_p=chat.top_p,
        # OpenAI-alikes write -1 for "all of them".
        top_k=None if chat.top_k is not None and chat.top_k < 0 else chat.top_k,
        stop=[stop for stop in chat.stop or () if stop.strip()] or None,
    )
    if len(sampling.get("stop", ())) < len(chat.stop or ()):
        note_dropped(chat, target, "stop", "stop sequences of white space alone are not taken")
    for name in _CHOOSING:
        if name in sampling and target.facts.get("temperature") is False and sampling.pop(name) != 1:
            note_dropped(chat, target, name, "the model chooses its words alone")
    if sampling.get("temperature", 0) > 1:
        sampling["temperature"] = 1.0
        note_dropped(chat, target, "temperature", "sent as 1, the most that this model's provider takes")
    if capabilities.signs_thinking and "temperature" in sampling and sampling.pop("top_p", 1) != 1:
        note_dropped(chat, target, "top_p", "not taken beside a temperature")
    if "top_k" in sampling and not capabilities.takes & {"top_k", "inferenceConfig.topK"}:
        del sampling["top_k"]
        note_dropped(chat, target, "top_k", "not taken by this model")
    return sampling


def write_sampling(sampling: Record, limit: int | None, capabilities: Capabilities) -> tuple[Record, Record]:
    """Return `inferenceConfig`, and the fields for the model itself."""
    config = without_none(
        maxTokens=limit,
        temperature=sampling.get("temperature"),
        topP=sampling.get("top_p"),
        stopSequences=sampling.get("stop"),
    )
    if "top_k" not in sampling:
        return config, {}
    top_k = sampling["top_k"]
    return config, {"top_k": top_k} if "top_k" in capabilities.takes else {"inferenceConfig": {"topK": top_k}}


_NAMES, _MAX_NAME_LENGTH = re.compile(r"[a-zA-Z0-9_-]+"), 64
# Hints that the format lacks: the answer is useful without them.
_HINTS: Final = (
    *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "user", "prompt_cache_key", "prediction"),
    *("verbosity", "store", "audio", "image_config"),
)
_TIERS: Final = {"flex": "flex", "priority": "priority", "fast": "priority", "reserved": "reserved"}
_USUAL_TIERS: Final = frozenset({"auto", "default", "standard", "standard_only"})
_LABEL = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}", re.ASCII)


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/model/{quote(target.model_name, safe='')}/converse{'-stream' if chat.stream else ''}"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the headers that belong to the format: a stream is no text."""
    return {"Accept": STREAM_TYPE} if chat.stream else {}


def signature_format(chat: Chat, target: Target) -> str | None:
    """Return whose signatures are wanted back: Anthropic's, where a model that knows them is to think."""
    return anthropic_messages.signature_format(chat, target) if capabilities_of(target).signs_thinking else None


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    _refuse_unsupported(chat)
    capabilities = capabilities_of(target)
    blocks = Blocks(target, capabilities)
    noted = len(target.dropped_fields)
    if not chat.is_plain:
        chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=True)
    _drop_unsupported_hints(chat, target, blocks)
    chat = adapt_tool_names(chat, target, _NAMES, _MAX_NAME_LENGTH)
    chat, output = with_form(chat, target)
    system, messages = write_messages(chat, blocks, capabilities)
    if wants_any_json(chat):
        system.append(JSON_PLEASE)
        target.rewrites.healing = True
    choices = write_tools(chat, blocks, target, capabilities)
    sampling = sampling_of(chat, target, capabilities)
    thinking, limit = write_thinking(chat, target, capabilities, sampling, messages, forced=choices.forced)
    config, fields = write_sampling(sampling, limit, capabilities)
    wire = without_none(
        system=system or None,
        messages=messages,
        inferenceConfig=config or None,
        toolConfig=choices.config,
        additionalModelRequestFields=fields | _betas(chat, target, capabilities) | choices.fields | thinking or None,
        outputConfig=output,
        requestMetadata=_labels(chat, target),
        serviceTier=_tier(chat, target),
    )
    if chat.dialect != NAME:
        return encode(wire)
    if _passes(chat, capabilities) and len(target.dropped_fields) == noted:
        wire |= _own_conversation(chat)
    return encode(merged(wire, chat.extra or {}))


def _passes(chat: Chat, capabilities: Capabilities) -> bool:
    """Return whether the conversation can be sent in the client's own words: the model takes results of tools as every
    model does, where there are any."""
    if chat.source is None or chat.source.dialect != NAME:
        return False
    return ToolResult not in chat.kinds or (capabilities.tool_results is None and capabilities.result_status)


def _own_conversation(chat: Chat) -> Record:
    """Return the fields of the conversation as the client wrote them."""
    body = b"" if chat.source is None else chat.source.body
    return {name: raw for name, raw in _read_fields(body).items() if name in _OWN_WORDS and raw != _NULL}


def _refuse_unsupported(chat: Chat) -> None:
    """Raise InvalidRequest for what would change the answer's very shape and has no words here."""
    for field, asked in (
        ("n", (chat.n or 1) > 1),
        ("logprobs", bool(chat.logprobs)),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
    ):
        if asked:
            raise unsupported_feature(chat, field, f"{field} is not available from this model's provider")


def _drop_unsupported_hints(chat: Chat, target: Target, blocks: Blocks) -> None:
    """Note the fields that the format lacks as dropped."""
    note_unsupported_hints(chat, target, *_HINTS)

    def is_returnable(part: Reasoning) -> bool:
        return bool(blocks.write(part, "assistant", ""))

    # Previews are noted where they are written.
    note_unsupported_fields(
        replace(chat, betas=None),
        target,
        NAME,
        marks=True,
        names=False,
        details=False,
        thinking=is_returnable,
        documents=True,
    )


def _betas(chat: Chat, target: Target, capabilities: Capabilities) -> Record:
    """Return Anthropic's previews that the client asks for and the model takes."""
    betas = chat.betas or []
    known = [beta for beta in betas if beta in capabilities.betas]
    if unknown := [beta for beta in betas if beta not in known]:
        note_dropped(chat, target, "betas", f"previews that the model does not take: {', '.join(unknown)[:200]}")
    return {"anthropic_beta": known} if known else {}


def _labels(chat: Chat, target: Target) -> dict[str, str] | None:
    """Return the client's labels, which Bedrock keeps in its own log of invocations."""
    labels = chat.metadata or {}
    if not labels:
        return None
    texts = [*labels, *labels.values()]
    if len(labels) > MAX_LABELS or not all(isinstance(text, str) and _LABEL.fullmatch(text) for text in texts):
        note_dropped(chat, target, "metadata", "this model's provider takes 16 labels of plain words")
        return None
    return dict(labels)


def _tier(chat: Chat, target: Target) -> Record | None:
    tier = chat.service_tier
    if tier is None or tier in _USUAL_TIERS:
        return None
    if tier not in _TIERS:
        note_dropped(chat, target, "service_tier", "the provider does not have this tier")
        return None
    return {"type": _TIERS[tier]}


_OWN_WORDS = frozenset({"messages", "system"})
_NULL = msgspec.Raw(b"null")
_COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")
_MAX_COUNT = 10**9
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`."""
    wire = _read_fields(write_request(chat, target))
    asked = {name: wire[name] for name in _COUNTED if name in wire}
    return f"/model/{quote(target.model_name, safe='')}/count-tokens", encode({"input": {"converse": asked}})


def read_count(body: bytes) -> int | None:
    """Return the tokens that were counted; None for an answer that does not say."""
    try:
        count = msgspec.json.decode(body, type=_Count).tokens
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return count if 0 <= count <= _MAX_COUNT else None


class _Count(msgspec.Struct):
    tokens: int = msgspec.field(name="inputTokens")
