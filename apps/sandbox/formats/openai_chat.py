"""OpenAI's chat completions: `POST /v1/chat/completions`, plain and as server-sent events."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import (
    FREE_TEXT,
    Conversation,
    Role,
    SandboxAnswer,
    SandboxChoice,
    SandboxTool,
    SandboxToolCall,
    SandboxUsage,
    Turn,
)
from apps.sandbox.formats import Glance
from apps.sandbox.generated_media import size_of
from apps.sandbox.scenario import SandboxRefusal, Scenario

PATH = re.compile("/v1/(projects/[^/]+/locations/[^/]+/endpoints/openapi/)?chat/completions")
MODELS_PATH = "/v1/models"
STREAM_TYPE = "text/event-stream"


_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_ATTACHMENTS = {"image_url": "image", "input_audio": "audio clip", "file": "file"}


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Glance(Struct):
    model: str
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class _Part(Struct):
    type: str
    text: str = ""


class _CalledFunction(Struct):
    name: str
    arguments: str


class _CalledCustom(Struct):
    name: str
    input: str


class _Call(Struct):
    id: str
    function: _CalledFunction | None = None
    custom: _CalledCustom | None = None

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.name if self.function else self.custom.name if self.custom else ""

    @property
    def arguments(self) -> str:
        """The arguments of the call."""
        return self.function.arguments if self.function else self.custom.input if self.custom else ""


class _Message(Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Function(Struct):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Custom(Struct):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None


class _Tool(Struct):
    type: str
    function: _Function | None = None
    custom: _Custom | None = None


class _Named(Struct):
    name: str


class _ChosenTool(Struct):
    function: _Named | None = None
    custom: _Named | None = None


class _AllowedTools(Struct):
    mode: Literal["auto", "required"]
    tools: list[_ChosenTool]


class _Choice(_ChosenTool):
    allowed_tools: _AllowedTools | None = None


class _JsonSchema(Struct):
    name: str
    schema: dict[str, Any] | None = None


class _ResponseFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


class _Reasoning(Struct):
    effort: str | None = None


class _ImageConfig(Struct):
    aspect_ratio: str | None = None


class _Request(_Glance, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    tools: list[_Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | _Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: _ResponseFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    user: Annotated[str, Meta(max_length=64)] | None = None
    reasoning: _Reasoning | None = None
    image_config: _ImageConfig | None = None


_glances = msgspec.json.Decoder(_Glance)
_requests = msgspec.json.Decoder(_Request)


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the Bearer token, or the key that Azure's clients present, if there is one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return (token.strip() if scheme.lower() == "bearer" else "") or headers.get("api-key") or None


def glance(path: str, body: bytes) -> Glance | None:
    """Return model and manner of the request; None where the body is not one."""
    try:
        seen = _glances.decode(body)
    except msgspec.MsgspecError:
        return None
    return Glance(seen.model, bool(seen.stream), _wants_usage(seen))


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as OpenAI does."""
    try:
        request = _requests.decode(body)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        missing = re.search("required field `(.*)`", message)
        field = place.rstrip("`") or (missing[1] if missing else None)
        raise SandboxRefusal(400, f"Invalid request: {message}", param=field) from error
    except msgspec.DecodeError as error:
        raise SandboxRefusal(400, "We could not parse the JSON body of your request.") from error
    _check_pairs(request.messages)
    tools = tuple(_tools(request))
    effort = request.reasoning_effort or (request.reasoning.effort if request.reasoning else None)
    return Conversation(
        model=request.model,
        turns=tuple(_turns(request.messages)),
        tools=tools,
        tool_choice=_tool_choice(request.tool_choice, tools),
        parallel_calls=request.parallel_tool_calls is not False,
        schema=_schema(request.response_format),
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        choices=request.n or 1,
        effort=effort,
        streamed=bool(request.stream),
        wants_usage=_wants_usage(request),
        picture=size_of(request.image_config.aspect_ratio) if request.image_config else "",
    )


def _tools(request: _Request) -> Iterator[SandboxTool]:
    """Yield the tools that may be called."""
    choice = request.tool_choice if isinstance(request.tool_choice, _Choice) else None
    allowed = None if choice is None or choice.allowed_tools is None else choice.allowed_tools.tools
    names = None if allowed is None else {_name_of(tool) for tool in allowed}
    for tool in request.tools or ():
        if tool.function:
            made = SandboxTool(
                tool.function.name, tool.function.description or "", tool.function.parameters or {"type": "object"}
            )
        elif tool.custom:
            made = SandboxTool(tool.custom.name, tool.custom.description or "", FREE_TEXT, custom=True)
        else:
            continue
        if names is None or made.name in names:
            yield made


def _name_of(tool: _ChosenTool) -> str:
    """Return the name of a tool that is pointed at. Raises Refusal (400)."""
    named = tool.function or tool.custom
    if named is None:
        raise SandboxRefusal(400, "Missing required parameter: 'tool_choice.function'.", param="tool_choice.function")
    return named.name


def _wants_usage(request: _Glance) -> bool:
    return bool(request.stream_options and request.stream_options.include_usage)


def _turns(messages: list[_Message]) -> Iterator[Turn]:
    names = {call.id: call.name for message in messages for call in message.tool_calls or ()}
    for message in messages:
        parts = message.content if isinstance(message.content, list) else []
        said = (
            message.content if isinstance(message.content, str) else "\n".join(part.text for part in parts if part.text)
        )
        called = "".join(call.name + call.arguments for call in message.tool_calls or ())
        counts = Counter(_ATTACHMENTS[part.type] for part in parts if part.type in _ATTACHMENTS)
        yield Turn(
            role=_ROLES[message.role],
            text=said + called,
            name=names.get(message.tool_call_id or "") or message.name,
            attachments=tuple(counts.items()),
        )


def _check_pairs(messages: list[_Message]) -> None:
    """Refuse tool calls without results and results without calls, in OpenAI's words."""
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                text = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
                raise SandboxRefusal(400, f"Invalid parameter: {text}", param=f"messages.[{place}].role")
            open_calls.discard(message.tool_call_id)
        elif open_calls:
            break
        else:
            open_calls = {call.id for call in message.tool_calls or ()}
    if open_calls:
        text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each of them."
        raise SandboxRefusal(400, f"{text} No response: {', '.join(sorted(open_calls))}", param="messages")


def _tool_choice(choice: str | _Choice | None, tools: tuple[SandboxTool, ...]) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        return choice
    if choice.allowed_tools:
        return choice.allowed_tools.mode
    name = _name_of(choice)
    if name not in {tool.name for tool in tools}:
        raise SandboxRefusal(400, f"Tool choice '{name}' not found in 'tools'.", param="tool_choice")
    return f"={name}"


def _schema(wanted: _ResponseFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {}
    if wanted.json_schema is None:
        raise SandboxRefusal(400, "Missing required parameter.", param="response_format.json_schema")
    return wanted.json_schema.schema or {}


CREATED = 1_767_225_600
"""2026-01-01T00:00:00Z, in seconds."""
ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

_FINGERPRINT = "fp_sandbox"
_EXTRA = {"x_sandbox": {"note": "an unknown field"}}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choices = [
        {"index": index, "message": _message(choice, scenario), "logprobs": None, "finish_reason": choice.finish}
        for index, choice in enumerate(answer.choices)
    ]
    reply = _envelope(answer, "chat.completion", choices)
    if answer.usage:
        reply["usage"] = _usage(answer.usage)
    return msgspec.json.encode(reply | (_EXTRA if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the chunks, the usage chunk if it is wanted, and `[DONE]`."""
    usage = answer.usage and _usage(answer.usage)
    own_chunk = wants_usage and scenario.usage_at == "own"
    common: dict[str, Any] = ({"usage": None} if own_chunk else {}) | (_EXTRA if scenario.extra else {})

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        chunk = _envelope(answer, "chat.completion.chunk", choices) | common | more
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"

    events: list[bytes] = []
    for index, choice in enumerate(answer.choices):
        frame: dict[str, Any] = {"index": index, "delta": {}, "logprobs": None, "finish_reason": None}
        events += [event([frame | {"delta": delta}]) for delta in _deltas(choice, scenario)]
        last = frame | {"finish_reason": choice.finish}
        with_usage = usage and scenario.usage_at == "finish" and index == len(answer.choices) - 1
        events.append(event([last], usage=usage) if with_usage else event([last]))
    if usage and own_chunk:
        events.append(event([], usage=usage))
    return [*events, b"data: [DONE]\n\n"]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    models = [{"id": name, "object": "model", "created": CREATED, "owned_by": "sandbox"} for name in names]
    return msgspec.json.encode({"object": "list", "data": models})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return OpenAI's error body."""
    kind, code = "invalid_request_error", refusal.code
    if refusal.status == 429:
        kind, code = "requests", code or "rate_limit_exceeded"
    elif refusal.status >= 500:
        kind = "server_error"
    error = {"message": refusal.message, "type": kind, "param": refusal.param, "code": code}
    return msgspec.json.encode({"error": error})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error body as an event."""
    return b"data: " + write_error(refusal) + b"\n\n"


def _envelope(answer: SandboxAnswer, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": kind,
        "created": CREATED,
        "model": answer.model,
        "system_fingerprint": _FINGERPRINT,
        "choices": choices,
    }


def _message(choice: SandboxChoice, scenario: Scenario) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.reasoning:
        said = choice.text and [{"type": "text", "text": choice.text}]
        message |= _thought(choice.reasoning, scenario, said or [])
    if choice.pictures:
        message["images"] = [_image(picture) for picture in choice.pictures]
    if choice.calls:
        message["tool_calls"] = [_written_call(call, call.arguments) for call in choice.calls]
    return message


def _image(picture: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(picture).decode()}"}}


def _written_call(call: SandboxToolCall, arguments: str) -> dict[str, Any]:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _deltas(choice: SandboxChoice, scenario: Scenario) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if choice.calls else "", "refusal": None}
    for piece in scenario.pieces_of(choice.reasoning or ""):
        yield _thought(piece, scenario, [])
    for piece in scenario.pieces_of(choice.text or ""):
        yield {"content": piece}
    for picture in choice.pictures:
        yield {"images": [_image(picture)]}
    for index, call in enumerate(choice.calls):
        yield {"tool_calls": [{"index": index} | _written_call(call, "")]}
        for piece in scenario.pieces_of(call.arguments, usual=ARGUMENT_DELTA):
            delta = {"custom": {"input": piece}} if call.custom else {"function": {"arguments": piece}}
            yield {"tool_calls": [{"index": index} | delta]}


def _thought(text: str, scenario: Scenario, said: list[dict[str, Any]]) -> dict[str, Any]:
    """Return thinking in a field of its own, or as a part of the content before the text."""
    if scenario.reasoning_field != "content":
        return {scenario.reasoning_field: text}
    return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}, *said]}


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    prompt = {"cached_tokens": usage.cached, "audio_tokens": 0}
    if usage.cache_write:
        prompt["cache_write_tokens"] = usage.cache_write
    written = {"reasoning_tokens": usage.reasoning, "audio_tokens": 0}
    if usage.painted:
        written["image_tokens"] = usage.painted
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": written,
    }
