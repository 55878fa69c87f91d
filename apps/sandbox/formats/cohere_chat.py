"""Cohere's chat, version 2: `POST /v2/chat`, plain and as server-sent events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import (
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
from apps.sandbox.scenario import SandboxRefusal, Scenario

PATH = re.compile("/v2/chat")
MODELS_PATH = "/v2/models"
STREAM_TYPE = "text/event-stream"


_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_CHOICES = {"REQUIRED": "required", "NONE": "none", None: "auto"}
# From how many tokens of thinking on it counts as which effort.
_EFFORTS = ((8_192, "high"), (2_048, "medium"), (0, "low"))


class _Glance(Struct):
    model: str
    stream: bool = False


class _Strict(Struct, forbid_unknown_fields=True):
    """An object of Cohere's: a field that is not named here is an error."""


class _ImageUrl(_Strict):
    url: str
    detail: Literal["auto", "low", "high"] = "auto"


class _Document(_Strict):
    data: dict[str, Any]
    id: str | None = None


class _Part(_Strict):
    type: Literal["text", "thinking", "image_url", "document"]
    text: str = ""
    thinking: str = ""
    image_url: _ImageUrl | None = None
    document: _Document | None = None


class _CalledFunction(_Strict):
    name: str
    arguments: str


class _Call(_Strict):
    id: str
    function: _CalledFunction
    type: Literal["function"] = "function"


class _Message(_Strict):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    tool_plan: str | None = None
    tool_calls: list[_Call] = []
    tool_call_id: str | None = None


class _Function(_Strict):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    parameters: dict[str, Any]
    description: str = ""


class _Tool(_Strict):
    function: _Function
    type: Literal["function"]


class _Thinking(_Strict):
    type: Literal["enabled", "disabled"]
    token_budget: Annotated[int, Meta(ge=1)] | None = None


class _Form(_Strict):
    type: Literal["text", "json_object"]
    json_schema: dict[str, Any] | None = None


class _CitationOptions(_Strict):
    mode: Literal["ENABLED", "DISABLED", "FAST", "ACCURATE", "OFF"] = "ENABLED"


class _Request(_Strict):
    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool = False
    documents: list[str | _Document] = []
    citation_options: _CitationOptions | None = None
    safety_mode: Literal["CONTEXTUAL", "STRICT", "OFF"] = "CONTEXTUAL"
    tools: list[_Tool] = []
    strict_tools: bool = False
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    response_format: _Form | None = None
    thinking: _Thinking | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=5)] = []
    temperature: Annotated[float, Meta(ge=0)] | None = None
    seed: int | None = None
    frequency_penalty: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=0, le=1)] | None = None
    k: Annotated[int, Meta(ge=0, le=500)] | None = None
    p: Annotated[float, Meta(ge=0.01, le=0.99)] | None = None
    logprobs: bool = False


_glances = msgspec.json.Decoder(_Glance)
_requests = msgspec.json.Decoder(_Request)


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the Bearer token, if there is one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def glance(path: str, body: bytes) -> Glance | None:
    """Return model and manner of the request; None where the body is not one."""
    try:
        seen = _glances.decode(body)
    except msgspec.MsgspecError:
        return None
    return Glance(seen.model, seen.stream, wants_usage=True)


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Cohere's manner."""
    try:
        request = _requests.decode(body)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"invalid request: {error}") from error
    _check_calls(request.messages)
    wants_json = request.response_format is not None and request.response_format.type == "json_object"
    if wants_json and request.tools:
        raise SandboxRefusal(400, "invalid request: response_format is not supported with tools")
    if request.tool_choice and not request.tools:
        raise SandboxRefusal(400, "invalid request: tool_choice requires tools")
    form = request.response_format
    return Conversation(
        model=request.model,
        turns=(*_read_documents(request.documents), *_turns(request.messages)),
        tools=tuple(
            SandboxTool(tool.function.name, tool.function.description, tool.function.parameters)
            for tool in request.tools
        ),
        tool_choice=_CHOICES[request.tool_choice],
        schema=(form.json_schema or {}) if form is not None and wants_json else None,
        max_tokens=request.max_tokens,
        stop=tuple(request.stop_sequences),
        effort=_effort(request.thinking),
        streamed=request.stream,
        wants_usage=True,
    )


def _read_documents(documents: list[str | _Document]) -> Iterator[Turn]:
    """Yield what the model reads of documents, before the conversation."""
    if documents:
        yield Turn(role="system", text="\n".join(map(_document_text, documents)))


def _document_text(document: str | _Document) -> str:
    return document if isinstance(document, str) else msgspec.json.encode(document.data).decode()


def _part_text(part: _Part) -> str:
    return part.text if part.document is None else _document_text(part.document)


def _turns(messages: list[_Message]) -> Iterator[Turn]:
    names = {call.id: call.function.name for message in messages for call in message.tool_calls}
    for message in messages:
        parts = message.content if isinstance(message.content, list) else []
        said = message.content if isinstance(message.content, str) else "\n".join(map(_part_text, parts))
        called = "".join(call.function.name + call.function.arguments for call in message.tool_calls)
        images = sum(part.type == "image_url" for part in parts)
        yield Turn(
            role=_ROLES[message.role],
            text=said + called,
            name=names.get(message.tool_call_id or ""),
            attachments=(("image", images),) if images else (),
        )


def _check_calls(messages: list[_Message]) -> None:
    """Refuse calls without results, results without calls, and arguments that are no JSON object."""
    awaited: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in awaited:
                raise SandboxRefusal(
                    400, f"invalid request: tool_call_id {message.tool_call_id} not found in tool_calls"
                )
            awaited.discard(message.tool_call_id or "")
            continue
        if awaited:
            break
        awaited = {call.id for call in message.tool_calls}
        for call in message.tool_calls:
            try:
                msgspec.json.decode(call.function.arguments, type=dict[str, Any])
            except msgspec.MsgspecError as error:
                raise SandboxRefusal(400, f"invalid request: arguments of {call.id}: {error}") from error
    if awaited:
        raise SandboxRefusal(400, f"invalid request: no tool results for {', '.join(sorted(awaited))}")


def _effort(thinking: _Thinking | None) -> str | None:
    if thinking is None:
        return None
    if thinking.type == "disabled":
        return "none"
    if thinking.token_budget is None:
        return "high"
    return next(effort for least, effort in _EFFORTS if thinking.token_budget >= least)


ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

PREAMBLE = 500
"""Tokens of Cohere's own instructions, which precede every prompt and are not billed."""

_FINISHES = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL", "content_filter": "ERROR_TOXIC"}
_PLAN = "I will use a tool."
_EXTRA = {"x_sandbox": {"note": "an unknown field"}}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choice = answer.choices[0]
    message: dict[str, Any] = {"role": "assistant"}
    if choice.calls:
        message |= {"tool_plan": _PLAN, "tool_calls": [_call(call, call.arguments) for call in choice.calls]}
    if content := list(_content(choice)):
        message["content"] = content
    reply: dict[str, Any] = {"id": answer.id, "finish_reason": _FINISHES[choice.finish], "message": message}
    if answer.usage:
        reply["usage"] = _usage(answer.usage)
    return msgspec.json.encode(reply | (_EXTRA if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the events, from `message-start` to `message-end`, and `[DONE]`."""
    choice = answer.choices[0]
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    events = [_event("message-start", id=answer.id, delta={"message": empty}, **(_EXTRA if scenario.extra else {}))]
    for index, part in enumerate(_content(choice)):
        events += _streamed(index, part, scenario)
    if choice.calls:
        events += [_delta("tool-plan-delta", None, {"tool_plan": piece}) for piece in scenario.pieces_of(_PLAN)]
    for index, call in enumerate(choice.calls):
        events.append(_delta("tool-call-start", index, {"tool_calls": _call(call, "")}))
        events += [
            _delta("tool-call-delta", index, {"tool_calls": {"function": {"arguments": piece}}})
            for piece in scenario.pieces_of(call.arguments, usual=ARGUMENT_DELTA)
        ]
        events.append(_event("tool-call-end", index=index))
    end: dict[str, Any] = {"finish_reason": _FINISHES[choice.finish]}
    if answer.usage:
        end["usage"] = _usage(answer.usage)
    return [*events, _event("message-end", id=answer.id, delta=end), b"data: [DONE]\n\n"]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    return msgspec.json.encode({"models": [{"name": name, "endpoints": ["chat"]} for name in names]})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Cohere's error body."""
    return msgspec.json.encode({"id": "sandbox", "message": refusal.message})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return an error in the middle of a stream: its end says that it went wrong."""
    return _event("message-end", id="sandbox", delta={"finish_reason": "ERROR", "error": refusal.message})


def _event(kind: str, **more: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))


def _delta(kind: str, index: int | None, message: dict[str, Any]) -> bytes:
    place = {} if index is None else {"index": index}
    return _event(kind, **place, delta={"message": message})


def _content(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    if choice.reasoning:
        yield {"type": "thinking", "thinking": choice.reasoning}
    if choice.text is not None:
        yield {"type": "text", "text": choice.text}


def _streamed(index: int, part: dict[str, Any], scenario: Scenario) -> Iterator[bytes]:
    kind = part["type"]
    yield _delta("content-start", index, {"content": {"type": kind, kind: ""}})
    for piece in scenario.pieces_of(part[kind]):
        yield _delta("content-delta", index, {"content": {kind: piece}})
    yield _event("content-end", index=index)


def _call(call: SandboxToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    """Return both counts: the billed tokens, and all tokens read and written."""
    billed = {"input_tokens": usage.prompt, "output_tokens": usage.completion - usage.reasoning}
    counts = {"input_tokens": usage.prompt + PREAMBLE, "output_tokens": usage.completion}
    return {"billed_units": billed, "tokens": counts, "cached_tokens": usage.cached + PREAMBLE if usage.cached else 0}
