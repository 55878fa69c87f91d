"""Reads requests as strictly as Anthropic does where a gateway can go wrong: limit, empty text, results after calls.

Unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxTool, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.anthropic_messages.signatures import SIGNATURE
from apps.sandbox.refusal import SandboxRefusal

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
