"""Anthropic's messages: `POST /v1/messages`, plain and as server-sent events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, SandboxChoice, SandboxTool, SandboxUsage, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.scenario import SandboxRefusal, Scenario

PATH = re.compile("(/anthropic)?/v1/messages")
MODELS_PATH = "/v1/models"
STREAM_TYPE = "text/event-stream"


SIGNATURE: Final = "c2FuZGJveCBzaWduYXR1cmU="


_ATTACHMENTS = {"image": "image", "document": "file"}
_SHARES = ((2_000, "low"), (8_000, "medium"))


class _Glance(Struct):
    model: str
    stream: bool | None = None


class _Block(Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    tool_use_id: str = ""
    content: str | list[_Block] | dict[str, Any] | None = None
    signature: str = ""


class _Message(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class _Tool(Struct):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}$")]
    type: str = "custom"
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _Choice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class _Thinking(Struct):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Meta(ge=1024)] | None = None


class _Form(Struct):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class _Output(Struct):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Form | None = None


class _Request(_Glance, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)]
    system: str | list[_Block] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    thinking: _Thinking | None = None
    output_config: _Output | None = None


_glances = msgspec.json.Decoder(_Glance)
_requests = msgspec.json.Decoder(_Request)


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the key, if there is one; `api-key` is how Azure's clients say it."""
    return headers.get("x-api-key", "").strip() or headers.get("api-key", "").strip() or None


def glance(path: str, body: bytes) -> Glance | None:
    """Return model and manner of the request; None where the body is not one."""
    try:
        seen = _glances.decode(body)
    except msgspec.MsgspecError:
        return None
    return Glance(seen.model, bool(seen.stream), wants_usage=True)


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as Anthropic does."""
    try:
        request = _requests.decode(body)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        missing = re.search("required field `(.*)`", message)
        field = place.rstrip("`") or (missing[1] if missing else "request")
        raise SandboxRefusal(400, f"{field}: {'Field required' if missing else message}") from error
    except msgspec.DecodeError as error:
        raise SandboxRefusal(400, "The request body is not valid JSON") from error
    _check(request)
    tools = tuple(
        SandboxTool(tool.name, tool.description or "", tool.input_schema or {"type": "object"})
        for tool in request.tools or ()
        if tool.type == "custom"
    )
    form = request.output_config.format if request.output_config else None
    return Conversation(
        model=request.model,
        turns=tuple(_turns(request)),
        tools=tools,
        tool_choice=_tool_choice(request.tool_choice),
        parallel_calls=not (request.tool_choice and request.tool_choice.disable_parallel_tool_use),
        schema=form.schema if form else None,
        max_tokens=request.max_tokens,
        stop=tuple(request.stop_sequences or ()),
        effort=_effort(request),
        streamed=bool(request.stream),
        wants_usage=True,
    )


def _blocks(content: Any) -> list[_Block]:
    if isinstance(content, str):
        return [_Block("text", text=content)]
    return content if isinstance(content, list) else []


def _check(request: _Request) -> None:
    """Refuse empty text, and calls and results that do not follow one another, in Anthropic's words."""
    open_calls: set[str] = set()
    for place, message in enumerate(request.messages):
        blocks = _blocks(message.content)
        if any(block.type == "text" and not block.text.strip() for block in blocks):
            raise SandboxRefusal(400, f"messages.{place}: text content blocks must contain non-whitespace text")
        results = {block.tool_use_id for block in blocks if block.type == "tool_result"}
        if unknown := results - open_calls:
            raise SandboxRefusal(400, f"messages.{place}: unexpected `tool_use_id` found: {', '.join(sorted(unknown))}")
        if missing := open_calls - results:
            raise SandboxRefusal(
                400, f"messages.{place}: `tool_use` ids without `tool_result`: {', '.join(sorted(missing))}"
            )
        open_calls = {block.id for block in blocks if block.type == "tool_use"}
    _check_thinking(request)
    budget = request.thinking.budget_tokens if request.thinking else None
    if budget is not None and budget >= request.max_tokens:
        raise SandboxRefusal(400, "`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_thinking(request: _Request) -> None:
    """Refuse foreign signatures and, where a budget for thinking is set, an open turn without its thinking."""
    said: list[list[_Block]] = []
    for place, message in enumerate(request.messages):
        blocks = _blocks(message.content)
        for at, block in enumerate(blocks):
            if block.type == "thinking" and block.signature != SIGNATURE:
                raise SandboxRefusal(400, f"messages.{place}.content.{at}: Invalid `signature` in `thinking` block")
        if message.role == "assistant":
            said.append(blocks)
        elif not any(block.type == "tool_result" for block in blocks):
            said = []
    if request.thinking is None or request.thinking.type != "enabled" or not said or not said[0]:
        return
    begins = said[0][0].type
    if begins not in {"thinking", "redacted_thinking"} and any(block.type == "tool_use" for block in said[-1]):
        raise SandboxRefusal(400, f"messages: Expected `thinking` or `redacted_thinking`, but found `{begins}`")


def _turns(request: _Request) -> Iterator[Turn]:
    if request.system:
        yield Turn(role="system", text=_text_of(_blocks(request.system)))
    names = {
        block.id: block.name
        for message in request.messages
        for block in _blocks(message.content)
        if block.type == "tool_use"
    }
    for message in request.messages:
        said: list[_Block] = []
        for block in _blocks(message.content):
            if block.type == "tool_result":
                yield Turn(role="tool", text=_text_of(_blocks(block.content)), name=names.get(block.tool_use_id))
            else:
                said.append(block)
        if said:
            counts = Counter(_ATTACHMENTS[block.type] for block in said if block.type in _ATTACHMENTS)
            yield Turn(role=message.role, text=_text_of(said), attachments=tuple(counts.items()))


def _text_of(blocks: list[_Block]) -> str:
    called = "".join(block.name + msgspec.json.encode(block.input or {}).decode() for block in blocks if block.name)
    return "\n".join(block.text for block in blocks if block.text) + called


def _tool_choice(choice: _Choice | None) -> str:
    if choice is None:
        return "auto"
    return f"={choice.name}" if choice.type == "tool" else {"any": "required"}.get(choice.type, choice.type)


def _effort(request: _Request) -> str | None:
    """Return how much to think: by the effort, or by the budget."""
    if request.thinking is None or request.thinking.type == "disabled":
        return None
    if request.thinking.budget_tokens is None:
        effort = (request.output_config.effort if request.output_config else None) or "high"
        return "xhigh" if effort == "max" else effort
    return next((word for most, word in _SHARES if request.thinking.budget_tokens <= most), "high")


ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

_EXTRA = {"x_sandbox": {"note": "an unknown field"}}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choice = answer.choices[0]
    message = _message(answer, scenario) | {
        "content": list(_answer_blocks(choice)),
        "stop_reason": _STOPS[choice.finish],
        "usage": _usage(answer.usage),
    }
    return msgspec.json.encode(message)


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the events, from `message_start` to `message_stop`."""
    choice = answer.choices[0]
    # As at Anthropic: the first event counts an output token or a few, and the last all of them.
    begun = min(answer.usage.completion, 1) if answer.usage is not None else 0
    start = _message(answer, scenario) | {"usage": _usage(answer.usage) | {"output_tokens": begun}}
    events = [_event("message_start", message=start), _event("ping")]
    for index, block in enumerate(_answer_blocks(choice)):
        events += _streamed(index, block, scenario)
    delta = {"stop_reason": _STOPS[choice.finish], "stop_sequence": None}
    return [*events, _event("message_delta", delta=delta, usage=_usage(answer.usage)), _event("message_stop")]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    models = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in names
    ]
    return msgspec.json.encode({"data": models, "has_more": False})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Anthropic's error body."""
    kind = _ERRORS.get(refusal.status, "api_error" if refusal.status >= 500 else "invalid_request_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": refusal.message}})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error body as an event."""
    return b"event: error\ndata: " + write_error(refusal) + b"\n\n"


def _event(kind: str, **more: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))


def _message(answer: SandboxAnswer, scenario: Scenario) -> dict[str, Any]:
    message = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": answer.model, "content": []}
    return message | {"stop_reason": None, "stop_sequence": None} | (_EXTRA if scenario.extra else {})


def _answer_blocks(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    if choice.reasoning:
        yield {"type": "thinking", "thinking": choice.reasoning, "signature": SIGNATURE}
    if choice.text:
        yield {"type": "text", "text": choice.text}
    for call in choice.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": msgspec.Raw(call.arguments.encode())}


def _streamed(index: int, block: dict[str, Any], scenario: Scenario) -> Iterator[bytes]:
    match block["type"]:
        case "thinking":
            start = block | {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": piece} for piece in scenario.pieces_of(block["thinking"])
            ] + [{"type": "signature_delta", "signature": block["signature"]}]
        case "text":
            start = block | {"text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in scenario.pieces_of(block["text"])]
        case _:
            start = block | {"input": {}}
            pieces = scenario.pieces_of(bytes(block["input"]).decode(), usual=ARGUMENT_DELTA)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
    yield _event("content_block_start", index=index, content_block=start)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _usage(usage: SandboxUsage | None) -> dict[str, Any]:
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    return {
        "input_tokens": usage.prompt - usage.cached - usage.cache_write,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }
