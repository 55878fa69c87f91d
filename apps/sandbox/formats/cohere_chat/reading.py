"""Reads requests as strictly as Cohere does where a gateway can go wrong: unknown fields, ranges, parameters of every
tool, a result after each call, a form beside tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, Role, SandboxTool, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.refusal import SandboxRefusal

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


class _Request(_Strict):
    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool = False
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
        turns=tuple(_turns(request.messages)),
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


def _turns(messages: list[_Message]) -> Iterator[Turn]:
    names = {call.id: call.function.name for message in messages for call in message.tool_calls}
    for message in messages:
        parts = message.content if isinstance(message.content, list) else []
        said = message.content if isinstance(message.content, str) else "\n".join(part.text for part in parts)
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
