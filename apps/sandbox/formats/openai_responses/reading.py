"""Reads requests as strictly as OpenAI does where a gateway can go wrong: unknown fields, types, a result after each
call, ids that are too long, thinking under its own seal.

Must never know what will be answered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, Role, SandboxTool, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.openai_responses.seals import seal_of
from apps.sandbox.refusal import SandboxRefusal

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_ATTACHMENTS = {"input_image": "image", "input_audio": "audio clip", "input_file": "file"}

Id = Annotated[str, Meta(min_length=1, max_length=64)]


class _Strict(Struct, forbid_unknown_fields=True):
    """An object of OpenAI's: a field that is not named here is an error."""


class _Part(Struct):
    type: Literal["input_text", "input_image", "input_audio", "input_file", "output_text", "refusal"]
    text: str = ""
    refusal: str = ""


class _Message(Struct, tag="message"):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]
    id: Id | None = None
    status: str | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class _Call(_Strict, tag="function_call"):
    call_id: Id
    name: str
    arguments: str
    id: Id | None = None
    status: str | None = None


class _Result(_Strict, tag="function_call_output"):
    call_id: Id
    output: str | list[_Part]
    id: Id | None = None
    status: str | None = None


class _Words(_Strict):
    type: Literal["summary_text", "reasoning_text"]
    text: str


class _Thinking(_Strict, tag="reasoning"):
    id: Id
    summary: list[_Words]
    content: list[_Words] | None = None
    encrypted_content: str | None = None
    status: str | None = None


_Item = _Message | _Call | _Result | _Thinking


class _Tool(_Strict):
    type: Literal["function", "web_search"]
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}$")] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    user_location: dict[str, Any] | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    filters: dict[str, Any] | None = None


class _Pointer(_Strict):
    type: str
    name: str | None = None


class _Chosen(_Strict):
    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[_Pointer] | None = None


class _Form(_Strict):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class _Text(_Strict):
    format: _Form | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class _Effort(_Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class _Request(_Strict):
    model: str
    input: str | list[msgspec.Raw]
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: int | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    reasoning: _Effort | None = None
    text: _Text | None = None
    tools: list[_Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | _Chosen | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    prompt_cache_key: str | None = None


class _Glance(Struct):
    model: str
    stream: bool | None = None


_glances = msgspec.json.Decoder(_Glance)
_requests = msgspec.json.Decoder(_Request)
_items = msgspec.json.Decoder(_Item)
_kinds = msgspec.json.Decoder(dict[str, msgspec.Raw])


def glance(path: str, body: bytes) -> Glance | None:
    """Return model and manner of the request; None where the body is not one."""
    try:
        seen = _glances.decode(body)
    except msgspec.MsgspecError:
        return None
    return Glance(seen.model, bool(seen.stream), wants_usage=True)


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as OpenAI does."""
    try:
        request = _requests.decode(body)
        items = _read_items(request.input)
    except msgspec.ValidationError as error:
        raise _refused(error) from error
    except msgspec.DecodeError as error:
        raise SandboxRefusal(400, "We could not parse the JSON body of your request.") from error
    _check_thinking(items)
    _check_pairs(items)
    tools = tuple(
        SandboxTool(tool.name, tool.description or "", tool.parameters or {"type": "object"})
        for tool in request.tools or ()
        if tool.name
    )
    instructions = [Turn("system", request.instructions)] if request.instructions else []
    return Conversation(
        model=request.model,
        turns=(*instructions, *_turns(items)),
        tools=tools,
        tool_choice=_tool_choice(request.tool_choice, tools),
        parallel_calls=request.parallel_tool_calls is not False,
        schema=_schema(request.text.format if request.text else None),
        max_tokens=request.max_output_tokens,
        effort=request.reasoning.effort if request.reasoning else None,
        streamed=bool(request.stream),
        wants_usage=True,
    )


def _refused(error: msgspec.ValidationError) -> SandboxRefusal:
    message, _, place = str(error).partition(" - at `$.")
    unknown = re.search("unknown field `(.*)`", message)
    missing = re.search("required field `(.*)`", message)
    if unknown:
        return SandboxRefusal(400, f"Unknown parameter: '{unknown[1]}'.", code="unknown_parameter", param=unknown[1])
    return SandboxRefusal(
        400, f"Invalid request: {message}", param=place.rstrip("`") or (missing[1] if missing else None)
    )


def _read_items(given: str | list[msgspec.Raw]) -> list[_Item]:
    """Return the items; a string is the user's, and an item that says no kind is a message."""
    if isinstance(given, str):
        return [_Message(role="user", content=given)]
    items = []
    for raw in given:
        fields = _kinds.decode(raw)
        items.append(_items.decode(msgspec.json.encode({"type": "message", **fields})))
    return items


def _turns(items: list[_Item]) -> Iterator[Turn]:
    names = {item.call_id: item.name for item in items if isinstance(item, _Call)}
    for item in items:
        if isinstance(item, _Message):
            text, counts = _said(item.content)
            yield Turn(role=_ROLES[item.role], text=text, attachments=tuple(counts.items()))
        elif isinstance(item, _Call):
            yield Turn(role="assistant", text=item.name + item.arguments)
        elif isinstance(item, _Result):
            text, counts = _said(item.output)
            yield Turn(role="tool", text=text, name=names[item.call_id], attachments=tuple(counts.items()))


def _said(content: str | list[_Part]) -> tuple[str, Counter[str]]:
    parts = content if isinstance(content, list) else []
    text = content if isinstance(content, str) else "\n".join(part.text or part.refusal for part in parts)
    return text.strip("\n"), Counter(_ATTACHMENTS[part.type] for part in parts if part.type in _ATTACHMENTS)


def _check_thinking(items: list[_Item]) -> None:
    """Refuse thinking that is not under the sandbox's own seal, in OpenAI's words: nothing is kept here."""
    for place, item in enumerate(items):
        if not isinstance(item, _Thinking):
            continue
        if item.encrypted_content is None:
            text = f"Item with id '{item.id}' not found. Items are not persisted when `store` is set to false."
            raise SandboxRefusal(404, text, param="input")
        if item.encrypted_content != seal_of(item.id):
            text = f"The encrypted content for item {item.id} could not be verified."
            raise SandboxRefusal(400, text, code="invalid_encrypted_content", param=f"input[{place}]")


def _check_pairs(items: list[_Item]) -> None:
    """Refuse calls without results and results without calls, in OpenAI's words."""
    waiting: list[str] = []
    for item in items:
        if isinstance(item, _Call):
            waiting.append(item.call_id)
        elif isinstance(item, _Result):
            if item.call_id not in waiting:
                text = f"No tool call found for function call output with call_id {item.call_id}."
                raise SandboxRefusal(400, text, param="input")
            waiting.remove(item.call_id)
    if waiting:
        raise SandboxRefusal(400, f"No tool output found for function call {waiting[0]}.", param="input")


def _tool_choice(choice: str | _Chosen | None, tools: tuple[SandboxTool, ...]) -> str:
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    if choice.type == "allowed_tools":
        return choice.mode or "auto"
    if choice.name not in {tool.name for tool in tools}:
        raise SandboxRefusal(400, f"Tool choice '{choice.name}' not found in 'tools' parameter.", param="tool_choice")
    return f"={choice.name}"


def _schema(wanted: _Form | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {}
    if wanted.name is None or wanted.schema is None:
        raise SandboxRefusal(400, "Missing required parameter: 'text.format.name'.", param="text.format.name")
    return wanted.schema
