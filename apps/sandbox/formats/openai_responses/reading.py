"""Reads requests as strictly as OpenAI does where a gateway can go wrong: unknown fields, types, a result after each
call, ids that are too long, thinking under its own signature.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import FREE_TEXT, Conversation, Role, SandboxTool, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.openai_responses.request_structs import (
    ChosenTool,
    ConfigurationUpdate,
    ContentPart,
    CustomCall,
    CustomResult,
    FunctionCall,
    FunctionResult,
    Item,
    MessageItem,
    OfferedTool,
    ReasoningItem,
    ResponseRequest,
    TextForm,
)
from apps.sandbox.formats.openai_responses.signatures import signature_of
from apps.sandbox.refusal import SandboxRefusal

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_ATTACHMENTS = {"input_image": "image", "input_audio": "audio clip", "input_file": "file"}


class _Glance(Struct):
    model: str
    stream: bool | None = None


_glances = msgspec.json.Decoder(_Glance)
_requests = msgspec.json.Decoder(ResponseRequest)
_items = msgspec.json.Decoder(Item)
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
    tools = tuple(made for tool in request.tools or () for made in _tools(tool, None))
    instructions = [Turn("system", request.instructions)] if request.instructions else []
    return Conversation(
        model=request.model,
        turns=(*instructions, *_turns(items)),
        tools=tools,
        tool_choice=_tool_choice(request.tool_choice, tools),
        parallel_calls=request.parallel_tool_calls is not False,
        schema=_schema(request.text.format if request.text else None),
        max_tokens=request.max_output_tokens,
        effort=_effort(request, items),
        streamed=bool(request.stream),
        wants_usage=True,
    )


def _effort(request: ResponseRequest, items: list[Item]) -> str | None:
    """Return the effort that was stated last."""
    stated = [item.reasoning for item in items if isinstance(item, ConfigurationUpdate)]
    efforts = [options.effort for options in (request.reasoning, *stated) if options is not None and options.effort]
    return efforts[-1] if efforts else None


def _tools(tool: OfferedTool, namespace: str | None) -> Iterator[SandboxTool]:
    """Yield the tools that a tool is: a namespace is all of its own, a provider's search is none."""
    for inner in tool.tools or ():
        yield from _tools(inner, tool.name)
    if tool.name and tool.type != "namespace":
        custom = tool.type == "custom"
        schema = FREE_TEXT if custom else tool.parameters or {"type": "object"}
        yield SandboxTool(tool.name, tool.description or "", schema, custom=custom, namespace=namespace)


def _refused(error: msgspec.ValidationError) -> SandboxRefusal:
    message, _, place = str(error).partition(" - at `$.")
    unknown = re.search("unknown field `(.*)`", message)
    missing = re.search("required field `(.*)`", message)
    if unknown:
        return SandboxRefusal(400, f"Unknown parameter: '{unknown[1]}'.", code="unknown_parameter", param=unknown[1])
    return SandboxRefusal(
        400, f"Invalid request: {message}", param=place.rstrip("`") or (missing[1] if missing else None)
    )


def _read_items(given: str | list[msgspec.Raw]) -> list[Item]:
    """Return the items; a string is the user's, and an item that says no kind is a message."""
    if isinstance(given, str):
        return [MessageItem(role="user", content=given)]
    items = []
    for raw in given:
        fields = _kinds.decode(raw)
        items.append(_items.decode(msgspec.json.encode({"type": "message", **fields})))
    return items


def _turns(items: list[Item]) -> Iterator[Turn]:
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall | CustomCall)}
    for item in items:
        if isinstance(item, MessageItem):
            text, counts = _said(item.content)
            yield Turn(role=_ROLES[item.role], text=text, attachments=tuple(counts.items()))
        elif isinstance(item, FunctionCall):
            yield Turn(role="assistant", text=item.name + item.arguments)
        elif isinstance(item, CustomCall):
            yield Turn(role="assistant", text=item.name + item.input)
        elif isinstance(item, FunctionResult | CustomResult):
            text, counts = _said(item.output)
            yield Turn(role="tool", text=text, name=names[item.call_id], attachments=tuple(counts.items()))


def _said(content: str | list[ContentPart]) -> tuple[str, Counter[str]]:
    parts = content if isinstance(content, list) else []
    text = content if isinstance(content, str) else "\n".join(part.text or part.refusal for part in parts)
    return text.strip("\n"), Counter(_ATTACHMENTS[part.type] for part in parts if part.type in _ATTACHMENTS)


def _check_thinking(items: list[Item]) -> None:
    """Refuse thinking that is not under the sandbox's own signature, in OpenAI's words: nothing is kept here."""
    for place, item in enumerate(items):
        if not isinstance(item, ReasoningItem):
            continue
        if item.encrypted_content is None:
            text = f"Item with id '{item.id}' not found. Items are not persisted when `store` is set to false."
            raise SandboxRefusal(404, text, param="input")
        if item.encrypted_content != signature_of(item.id):
            text = f"The encrypted content for item {item.id} could not be verified."
            raise SandboxRefusal(400, text, code="invalid_encrypted_content", param=f"input[{place}]")


def _check_pairs(items: list[Item]) -> None:
    """Refuse calls without results and results without calls, in OpenAI's words."""
    waiting: list[str] = []
    for item in items:
        if isinstance(item, FunctionCall | CustomCall):
            waiting.append(item.call_id)
        elif isinstance(item, FunctionResult | CustomResult):
            if item.call_id not in waiting:
                text = f"No tool call found for function call output with call_id {item.call_id}."
                raise SandboxRefusal(400, text, param="input")
            waiting.remove(item.call_id)
    if waiting:
        raise SandboxRefusal(400, f"No tool output found for function call {waiting[0]}.", param="input")


def _tool_choice(choice: str | ChosenTool | None, tools: tuple[SandboxTool, ...]) -> str:
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    if choice.type == "allowed_tools":
        return choice.mode or "auto"
    if choice.name not in {tool.name for tool in tools}:
        raise SandboxRefusal(400, f"Tool choice '{choice.name}' not found in 'tools' parameter.", param="tool_choice")
    return f"={choice.name}"


def _schema(wanted: TextForm | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {}
    if wanted.name is None or wanted.schema is None:
        raise SandboxRefusal(400, "Missing required parameter: 'text.format.name'.", param="text.format.name")
    return wanted.schema
