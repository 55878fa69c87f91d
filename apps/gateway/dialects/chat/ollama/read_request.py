"""Ollama's API, client side: reads the body of `/api/chat` into a canonical chat.

Refusals name the field. Options that only say how a model is loaded, and for how long, ask for nothing here.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from typing import Any, Final

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Image,
    Message,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.canonical.tool_result_pairing import pair_calls
from apps.gateway.dialects.chat.ollama.wire import NAME, encode, model_name
from apps.gateway.dialects.chat.openai.wire import EFFORTS
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    IMAGE_HEAD,
    Malformed,
    Reader,
    Record,
    boolean,
    filled_string,
    image_type_of,
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
from apps.kernel.errors import InvalidRequest

# Bounds far beyond any model's context.
MAX_MESSAGES, MAX_IMAGES, MAX_CALLS, MAX_TOOLS, MAX_STOPS = 10_000, 1_000, 1_000, 1_000, 1_000
MAX_MODEL: Final = 512
# No model writes a billion tokens, and a count beyond does not fit where it is kept.
MAX_TOKENS: Final = 1_000_000_000
# Text that models read; it may be as long as a body.
_CONVERSATION: Final = frozenset({"messages", "tools", "format"})
_MESSAGE_FIELDS: Final = frozenset({"role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id"})
_CALL_FIELDS: Final = frozenset({"id", "type", "function"})
_FUNCTION_CALL_FIELDS: Final = frozenset({"index", "name", "arguments"})
_TOOL_FIELDS: Final = frozenset({"type", "function"})
_FUNCTION_FIELDS: Final = frozenset({"name", "description", "parameters"})
# How a model is loaded into memory, and for how long: every model here is always ready, with all of its context.
LOADING_OPTIONS: Final = frozenset(
    {
        *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "use_mlock"),
        *("numa", "low_vram", "f16_kv", "vocab_only", "logits_all", "embedding_only", "draft_num_predict"),
    }
)
_LOADING_FIELDS: Final = frozenset({"keep_alive"})
# Characters of base64 that hold the first bytes of an image.
_HEAD: Final = IMAGE_HEAD // 3 * 4


class NothingAsked(InvalidRequest):
    """A request without a conversation, by which Ollama's clients load a `model` into memory or unload it.

    `done_reason` says which: `load` or `unload`.
    """

    def __init__(self, model: str, keep_alive: Any, field: str) -> None:
        super().__init__(f"{field}: must not be empty", code="invalid_parameters", param=field)
        self.model = model
        self.done_reason = "unload" if _is_zero(keep_alive) else "load"


def _is_zero(keep_alive: Any) -> bool:
    return keep_alive == 0 or (isinstance(keep_alive, str) and keep_alive.strip("0hms. ") == "" and "0" in keep_alive)


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest naming the field; NothingAsked without messages."""
    return fields.read_body(body, _CONVERSATION, _read)


def _read(wire: Record) -> Chat:
    known, unknown = read_fields(wire, {"messages": _messages, "tools": _tools})
    messages = known.pop("messages", [])
    if not messages:
        raise NothingAsked(known["model"], wire.get("keep_alive"), "messages")
    pair_calls(messages)
    return Chat(messages=messages, tools=known.pop("tools", None) or None, extra=unknown or None, dialect=NAME, **known)


def read_fields(wire: Record, readers: Mapping[str, Reader[Any]]) -> tuple[Record, Record]:
    """Return the fields of a chat that a body says, by the common readers and these; and the fields that have no
    meaning here. Raises Malformed."""
    known, unknown = fields.read_known(wire, {**_READERS, **readers})
    for name in _LOADING_FIELDS:
        unknown.pop(name, None)
    take_router_fields(unknown, known)
    if "model" not in known:
        raise Malformed("Required", "model")
    options, left = known.pop("options", ({}, {}))
    if left:
        unknown["options"] = left
    for name in ("truncate", "shift"):
        # Prompts are sent whole.
        if known.pop(name, False):
            unknown[name] = True
    if not known.get("logprobs"):
        known.pop("top_logprobs", None)
    form, thinking = known.pop("format", None), known.pop("think", None)
    known.setdefault("stream", True)
    return {**known, **options, "response_format": form, "reasoning": thinking}, unknown


def _model(value: Any) -> str:
    if len(filled_string(value)) > MAX_MODEL:
        raise Malformed(f"must be at most {MAX_MODEL} characters long")
    return model_name(str(value))


def _format(value: Any) -> ResponseFormat | None:
    if isinstance(value, dict):
        return ResponseFormat(kind="json_schema", name="answer", schema=value)
    if value not in ("", "json"):
        raise Malformed("must be json or a JSON schema")
    return ResponseFormat(kind="json_object") if value else None


def _think(value: Any) -> ReasoningRequest:
    if value is False:
        return ReasoningRequest(effort="none", exclude=True)
    return ReasoningRequest(effort="medium" if value is True else _effort(value))


def _effort(value: Any) -> Any:
    if not isinstance(value, str) or value not in EFFORTS:
        raise Malformed(f"must be true, false, or one of {', '.join(EFFORTS)}")
    return value


def _options(value: Any) -> tuple[Record, Record]:
    """Read `options`: what they say of a chat, and those that no other format has."""
    known, unknown = fields.read_known(record(value), _OPTIONS)
    said = {_NAMES.get(name, name): one for name, one in known.items() if one is not None}
    return said, {name: one for name, one in unknown.items() if name not in LOADING_OPTIONS}


def _limit(value: Any) -> int | None:
    """Read `num_predict`; a number below 1 is no limit."""
    limit = integer(-2, MAX_TOKENS)(value)
    return limit if limit > 0 else None


def _top_k(value: Any) -> int:
    """Read `top_k`; 0 is every token."""
    return integer(0, MAX_TOKENS)(value) or -1


def _stop(value: Any) -> list[str] | None:
    return [value] if isinstance(value, str) else _stops(value) or None


def read_images(value: Any) -> list[Part]:
    """Read `images`: the base64 of each."""
    return [*_images(value)]


def _image(value: Any) -> Image:
    data = filled_string(value)
    if data.startswith("data:image/"):
        return Image(url=data)
    try:
        media_type = image_type_of(b64decode(data[:_HEAD].encode("ascii"), validate=True))
    except (Error, ValueError):
        media_type = None
    if media_type is None:
        raise Malformed("must be the base64 of a PNG, JPEG, GIF or WebP image")
    return Image(url=f"data:{media_type};base64,{data}")


def _message(value: Any) -> Message:
    wire = record(value)
    role = required(wire, "role", _role)
    extra = fields.rest_of(wire, _MESSAGE_FIELDS)
    text = optional(wire, "content", string) or ""
    images = optional(wire, "images", read_images) or []
    if role == "tool":
        result = ToolResult(
            call_id=optional(wire, "tool_call_id", string) or "",
            parts=[Text(text=text), *images],
            name=optional(wire, "tool_name", string) or None,
        )
        return Message(role=role, parts=[result], extra=extra)
    parts: list[Part] = []
    calls = (optional(wire, "tool_calls", _calls) or []) if role == "assistant" else []
    if role == "assistant" and (thinking := optional(wire, "thinking", string)):
        parts.append(Reasoning(text=thinking))
    if text or not (images or calls):
        parts.append(Text(text=text))
    return Message(role=role, parts=[*parts, *images, *calls], extra=extra)


def _role(value: Any) -> Role:
    role: Role = _any_role(value.lower() if isinstance(value, str) else value)
    return role


def _call(value: Any) -> ToolCall:
    wire = record(value)
    function = required(wire, "function", record)
    return ToolCall(
        id=optional(wire, "id", string) or "",
        name=fields.within("function", lambda it: required(it, "name", filled_string), function),
        arguments=fields.within("function", _arguments, function),
        extra=fields.rest_of({**wire, **(fields.rest_of(function, _FUNCTION_CALL_FIELDS) or {})}, _CALL_FIELDS),
    )


def _arguments(function: Record) -> str:
    """Return a call's arguments as JSON; clients that keep the text that the model wrote may send that."""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        return arguments
    return encode(optional(function, "arguments", record) or {}).decode()


def _tool(value: Any) -> FunctionTool:
    wire = record(value)
    optional(wire, "type", one_of("function"))
    function = required(wire, "function", record)
    unknown = fields.rest_of(function, _FUNCTION_FIELDS)
    return fields.within(
        "function",
        lambda it: FunctionTool(
            name=required(it, "name", filled_string),
            description=optional(it, "description", string),
            parameters=optional(it, "parameters", record),
            extra=fields.rest_of({**wire, **(unknown or {})}, _TOOL_FIELDS),
        ),
        function,
    )


_any_role = one_of("system", "user", "assistant", "tool")
_stops = list_of(string, MAX_STOPS)
_images = list_of(_image, MAX_IMAGES)
_calls = list_of(_call, MAX_CALLS)
_tools = list_of(_tool, MAX_TOOLS)
_messages = list_of(_message, MAX_MESSAGES)
_NAMES: Final = {"num_predict": "max_tokens"}
_OPTIONS: Final[dict[str, Reader[Any]]] = {
    "num_predict": _limit,
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_k": _top_k,
    "seed": integer(-(2**63), 2**63 - 1),
    "stop": _stop,
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
}
_READERS: Final[dict[str, Reader[Any]]] = {
    "model": _model,
    "stream": boolean,
    "format": _format,
    "think": _think,
    "options": _options,
    "logprobs": boolean,
    "top_logprobs": integer(0, 20),
    "truncate": boolean,
    "shift": boolean,
}
