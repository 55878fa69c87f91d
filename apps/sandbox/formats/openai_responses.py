"""OpenAI's Responses: `POST /v1/responses`, plain and as server-sent events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

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
from apps.sandbox.formats.openai_chat import (
    ARGUMENT_DELTA,
    CREATED,
    MODELS_PATH,
    STREAM_TYPE,
    find_token,
    write_error,
    write_models,
)
from apps.sandbox.scenario import SandboxRefusal, Scenario

# Some members of the format are those of chat completions.
__all__ = [
    "MODELS_PATH",
    "PATH",
    "STREAM_TYPE",
    "find_token",
    "glance",
    "read_request",
    "write_error",
    "write_error_event",
    "write_events",
    "write_models",
    "write_reply",
]

PATH = re.compile("(/openai)?/v1/responses")


Id = Annotated[str, Meta(min_length=1, max_length=64)]


class Strict(Struct, forbid_unknown_fields=True):
    """An object of OpenAI's: a field that is not named here is an error."""


class ContentPart(Struct):
    type: Literal["input_text", "input_image", "input_audio", "input_file", "output_text", "refusal"]
    text: str = ""
    refusal: str = ""


class MessageItem(Struct, tag="message"):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]
    id: Id | None = None
    status: str | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(Strict, tag="function_call"):
    call_id: Id
    name: str
    arguments: str
    namespace: str | None = None
    id: Id | None = None
    status: str | None = None


class CustomCall(Strict, tag="custom_tool_call"):
    call_id: Id
    name: str
    input: str
    namespace: str | None = None
    id: Id | None = None


class CustomResult(Strict, tag="custom_tool_call_output"):
    call_id: Id
    output: str | list[ContentPart]


class FunctionResult(Strict, tag="function_call_output"):
    call_id: Id
    output: str | list[ContentPart]
    id: Id | None = None
    status: str | None = None


class ReasoningText(Strict):
    type: Literal["summary_text", "reasoning_text"]
    text: str


class ReasoningItem(Strict, tag="reasoning"):
    id: Id
    summary: list[ReasoningText]
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    status: str | None = None


class ReasoningOptions(Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None


class ConfigurationUpdate(Strict, tag="configuration_update"):
    reasoning: ReasoningOptions | None = None
    text: dict[str, Any] | None = None
    id: Id | None = None


Item = MessageItem | FunctionCall | CustomCall | FunctionResult | CustomResult | ReasoningItem | ConfigurationUpdate


class OfferedTool(Strict):
    type: Literal["function", "web_search", "custom", "namespace"]
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}$")] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: dict[str, Any] | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    user_location: dict[str, Any] | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    filters: dict[str, Any] | None = None
    external_web_access: bool | None = None
    format: dict[str, Any] | None = None
    tools: list[OfferedTool] | None = None


class ToolPointer(Strict):
    type: str
    name: str | None = None


class ChosenTool(Strict):
    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[ToolPointer] | None = None


class TextForm(Strict):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextOptions(Strict):
    format: TextForm | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


Include = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class ResponseRequest(Strict):
    model: str
    input: str | list[Raw]
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    include: list[Include] | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: int | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[dict[str, Any]] | None = None
    user: Id | None = None
    safety_identifier: Id | None = None
    metadata: dict[str, str] | None = None
    moderation: dict[str, Any] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    prompt_cache_key: Id | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    prompt_cache_options: dict[str, Any] | None = None


_MARK = "gAAAAA"


def signature_of(item_id: str) -> str:
    """Return the encrypted content of a reasoning item."""
    return _MARK + sha256(f"sandbox:{item_id}".encode()).hexdigest()


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


Record = dict[str, Any]

_EXTRA = {"x_sandbox": {"note": "an unknown field"}}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_CODES = {429: "rate_limit_exceeded"}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    return msgspec.json.encode(_response(answer, scenario, list(_output_items(answer))))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the events of a stream, numbered; the last one has the whole response."""
    begun = _response(answer, scenario, None)
    events: list[Record] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    items = list(_output_items(answer))
    for index, item in enumerate(items):
        events += _item_events(index, item, scenario)
    whole = _response(answer, scenario, items)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [_event({**event, "sequence_number": number}) for number, event in enumerate(events)]


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the event with which a stream fails."""
    code = refusal.code or _CODES.get(refusal.status, "server_error")
    return _event({"type": "error", "code": code, "message": refusal.message, "param": None, "sequence_number": 0})


def _event(event: Record) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def _response(answer: SandboxAnswer, scenario: Scenario, items: list[Record] | None) -> Record:
    """Return the response around items; None where it has only begun."""
    finish = answer.choices[0].finish
    reason = _INCOMPLETE.get(finish)
    status = "incomplete" if reason else "completed"
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress" if items is None else status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason and items is not None else None,
        "model": answer.model,
        "output": items or [],
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(answer.usage) if answer.usage and items is not None else None,
        **(_EXTRA if scenario.extra else {}),
    }


def _output_items(answer: SandboxAnswer) -> Iterator[Record]:
    choice = answer.choices[0]
    if choice.reasoning:
        yield _thinking(answer.id, choice)
    if choice.text is not None:
        yield {
            "type": "message",
            "id": f"msg_{answer.id}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": choice.text, "annotations": [], "logprobs": []}],
        }
    for number, call in enumerate(choice.calls):
        yield _call(f"fc_{answer.id}_{number}", call)


def _thinking(name: str, choice: SandboxChoice) -> Record:
    item_id = f"rs_{name}"
    summary = [{"type": "summary_text", "text": choice.reasoning}]
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": signature_of(item_id)}


def _call(item_id: str, call: SandboxToolCall) -> Record:
    kind, field = ("custom_tool_call", "input") if call.custom else ("function_call", "arguments")
    wire = {"type": kind, "id": item_id, "call_id": call.id, "name": call.name}
    if call.namespace is not None:
        wire["namespace"] = call.namespace
    return {**wire, field: call.arguments, "status": "completed"}


def _item_events(index: int, item: Record, scenario: Scenario) -> Iterator[Record]:
    """Yield the events of an item: its beginning, its pieces, and the whole of it."""
    at = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    empty: dict[str, Record] = {"reasoning": {"summary": []}, "message": {"content": []}}
    hollow = {**item, **empty.get(kind, {"input" if kind == "custom_tool_call" else "arguments": ""})}
    yield {"type": "response.output_item.added", "output_index": index, "item": hollow}
    if kind == "reasoning":
        at["summary_index"] = 0
        for piece in scenario.pieces_of(item["summary"][0]["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
    elif kind == "message":
        at["content_index"] = 0
        for piece in scenario.pieces_of(item["content"][0]["text"]):
            yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": item["content"][0]["text"], "logprobs": []}
    else:
        custom = kind == "custom_tool_call"
        word, field = ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
        for piece in scenario.pieces_of(item[field], usual=ARGUMENT_DELTA):
            yield {"type": f"response.{word}.delta", **at, "delta": piece}
        yield {"type": f"response.{word}.done", **at, field: item[field]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _usage(usage: SandboxUsage) -> Record:
    read: Record = {"cached_tokens": usage.cached}
    if usage.cache_write:
        read["cache_write_tokens"] = usage.cache_write
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": read,
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
