"""Cohere Chat v2, provider side: writes a canonical chat as a request body.

A request in this very format passes through untouched except for the model's name, unless something in it has to be
adapted; any other is written from the canonical form. An unsupported hint is dropped with a note; a field that would
change the answer is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import (
    Chat,
    Effort,
    File,
    FunctionTool,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Target,
    Text,
    ToolCall,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import add_structured_output_tool
from apps.gateway.dialects.adapting.text_documents import text_of_document
from apps.gateway.dialects.adapting.thinking import split_signature
from apps.gateway.dialects.adapting.unsupported_fields import (
    message_path,
    note_dropped,
    note_unsupported_fields,
    repair_tool_results,
)
from apps.gateway.dialects.chat.cohere.wire import (
    DOCUMENT,
    NAME,
    PLAN_FORMAT,
    Capabilities,
    capabilities_of,
    encode,
    refused,
    without_none,
)
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.dialects.reading.router_fields import ROUTER_FIELDS


def write_messages(chat: Chat, target: Target, *, thinks: bool) -> list[Record]:
    """Return all messages; `thinks` tells whether the model reads earlier thinking. Raises InvalidRequest naming the
    part that cannot be said."""
    written: list[Record] = []
    shown: list[Record] = []
    own = chat.dialect == NAME
    for number, message in enumerate(chat.messages):
        place = message_path(chat, number)
        extra = (message.extra or {}) if own else {}
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if shown and not results:
            written.append({"role": "user", "content": shown})
            shown = []
        written.extend({**_result(result, place, shown), **extra} for result in results)
        if results:
            shown += _content([part for part in message.parts if not isinstance(part, ToolResult)], place)
        elif message.role == "assistant":
            written.append({**_answer(message.parts, place, target, thinks=thinks), **extra})
        else:
            role = "system" if message.role in ("system", "developer") else "user"
            parts = [part for part in message.parts if not _is_document(part)]
            written.append(
                {"role": role, "content": _plain(_content(parts, place, only_text=role == "system")), **extra}
            )
    if shown:
        written.append({"role": "user", "content": shown})
    return written


def write_documents(chat: Chat) -> list[Any]:
    """Return the documents that the model is to answer from, which are parts of users' messages."""
    return [
        part.data[DOCUMENT]
        for message in chat.messages
        if message.role == "user"
        for part in message.parts
        if isinstance(part, Opaque) and _is_document(part)
    ]


def _is_document(part: Part) -> bool:
    return isinstance(part, Opaque) and part.dialect == NAME and part.data.get("type") == DOCUMENT


def _answer(parts: list[Part], place: str, target: Target, *, thinks: bool) -> Record:
    """Return an earlier answer of the model's, with what it thought where the model reads that."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    thoughts = [part for part in parts if isinstance(part, Reasoning) and part.text]
    plans = [part for part in thoughts if part.format == PLAN_FORMAT or (calls and not thinks)]
    others = [part for part in parts if not isinstance(part, ToolCall | Reasoning | Image)]
    if any(isinstance(part, Image) for part in parts):
        target.note_dropped(f"{place}.images", "an answer's images cannot go back to this model's provider")
    content = _content(others, place)
    if thinks:
        deep = [part for part in thoughts if part not in plans]
        content = [*({"type": "thinking", "thinking": part.text} for part in deep), *content]
    return without_none(
        role="assistant",
        content=_plain(content) if content or not calls else None,
        tool_plan="\n".join(part.text for part in plans) if plans and calls else None,
        tool_calls=[_call(call) for call in calls] or None,
    )


def _call(call: ToolCall) -> Record:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": split_signature(call.id)[0], "type": "function", "function": function}


def _result(result: ToolResult, place: str, shown: list[Record]) -> Record:
    """Return what a tool answered; the images in it are added to `shown`."""
    content: list[Record] = []
    for part in _content(result.parts, place):
        (shown if part["type"] == "image_url" else content).append(part)
    if result.is_error:
        content = [{"type": "text", "text": "Error:"}, *content]
        if all(part["type"] == "text" for part in content):
            content = [{"type": "text", "text": " ".join(part["text"] for part in content)}]
    return {"role": "tool", "tool_call_id": split_signature(result.call_id)[0], "content": _plain(content)}


def _content(parts: Sequence[Part], place: str, *, only_text: bool = False) -> list[Record]:
    """Return parts as the wire has them. Raises InvalidRequest for other parts than text and, for users, images."""
    content: list[Record] = []
    for number, part in enumerate(parts):
        if isinstance(part, Text | Refusal):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Image) and not only_text:
            content.append({"type": "image_url", "image_url": without_none(url=part.url, detail=part.detail)})
        elif isinstance(part, Opaque) and part.dialect == NAME:
            content.append(dict(part.data))
        elif isinstance(part, File) and (text := text_of_document(part)) is not None:
            content.append({"type": "text", "text": text})
        else:
            raise refused(
                "A message holds content that this model's provider has no form for", f"{place}.content[{number}]"
            )
    filled = [part for part in content if part.get("text") != ""]
    return filled or content[:1]


def _plain(content: list[Record]) -> str | list[Record]:
    """Return a text alone as the string that it is."""
    if not content:
        return ""
    if len(content) == 1 and content[0]["type"] == "text":
        return str(content[0]["text"])
    return content


_NO_PARAMETERS: Record = {"type": "object", "properties": {}}
_MODES = {"required": "REQUIRED", "named": "REQUIRED", "none": "NONE"}


def write_tools(chat: Chat, target: Target) -> Record:
    """Return the fields that say which tools there are and whether they are called. Raises InvalidRequest."""
    if chat.web_search or any(isinstance(tool, WebSearchTool) for tool in chat.tools or ()):
        raise refused(
            "Web search is not available from this model's provider", "web_search" if chat.web_search else "tools"
        )
    tools = [tool for tool in chat.tools or () if isinstance(tool, FunctionTool)]
    if len(tools) < len(chat.tools or ()):
        raise refused("A tool is of a kind that this model's provider does not have", "tools")
    mode, tools = _chosen(chat, tools)
    if tools and chat.parallel_tool_calls is False:
        note_dropped(chat, target, "parallel_tool_calls", "this model's provider has no way to call one tool at a time")
    return without_none(
        tools=[_tool(tool) for tool in tools] or None,
        strict_tools=_strict(tools, target),
        tool_choice=_MODES.get(mode) if tools else None,
    )


def _chosen(chat: Chat, tools: list[FunctionTool]) -> tuple[str, list[FunctionTool]]:
    """Return whether tools are called, and those to choose from. Raises InvalidRequest for a name that is none."""
    choice = chat.tool_choice
    if choice is None:
        return "auto", tools
    names = (choice.name,) if choice.mode == "named" else choice.allowed
    if not names:
        return choice.mode, tools
    chosen = [tool for tool in tools if tool.name in names]
    if not chosen:
        raise refused("tool_choice names a tool that is not in tools", "tool_choice")
    return choice.mode, chosen


def _tool(tool: FunctionTool) -> Record:
    function = without_none(name=tool.name, description=tool.description, parameters=tool.parameters or _NO_PARAMETERS)
    return {"type": "function", "function": function}


def _strict(tools: list[FunctionTool], target: Target) -> bool | None:
    """Return whether arguments are bound to the schemas: for all tools or for none, and for none without a parameter
    that is required."""
    strict = [tool for tool in tools if tool.strict]
    if not strict:
        return None
    if len(strict) == len(tools) and all((tool.parameters or {}).get("required") for tool in tools):
        return True
    target.note_dropped(
        "tools", "this model's provider binds the arguments of all tools to their schemas or of none: not `strict`"
    )
    return None


# The bounds that Cohere states.
_RANGES: Final = {
    "top_p": (0.01, 0.99),
    "top_k": (0, 500),
    "frequency_penalty": (0, 1),
    "presence_penalty": (0, 1),
}
_NAMES: Final = {"top_p": "p", "top_k": "k", "stop": "stop_sequences"}
_SAME: Final = ("max_tokens", "temperature", "seed", "logprobs")
# Fields that the format lacks and that do not change the answer: dropped with a note.
_LACKING: Final = (
    "top_logprobs",
    "logit_bias",
    "effort",
    "plugins",
    "user",
    "metadata",
    "service_tier",
    "prompt_cache_key",
    "verbosity",
    "prediction",
    "store",
    "audio",
)
# The share of the answer's limit that each effort may use for thinking.
_SHARES: Final[dict[Effort, float]] = {"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8}
_JSON_PLEASE: Final = {"role": "system", "content": "Answer with JSON."}
_NULL: Final = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_FIELD: Final = "has no counterpart at this model's provider"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/chat"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    noted = len(target.dropped_fields)
    asked, wire = _write(chat, target)
    source = asked.source
    if source is not None and source.dialect == NAME and len(target.dropped_fields) == noted:
        return encode(_pass_on(source.body, asked, target))
    return encode(wire)


def _pass_on(body: bytes, chat: Chat, target: Target) -> Record:
    """Return the fields that the client wrote, each as its bytes, with the provider's name of the model."""
    wire: Record = {name: raw for name, raw in _read_fields(body).items() if raw != _NULL and name not in ROUTER_FIELDS}
    if not chat.tools:
        # A choice among no tools is refused.
        wire.pop("tool_choice", None)
    if chat.max_tokens is not None:
        # Lowered, maybe, to what the model can write.
        wire["max_tokens"] = chat.max_tokens
    return {**wire, "model": target.model_name}


def _write(chat: Chat, target: Target) -> tuple[Chat, Record]:
    """Return the chat as it can be sent, and the fields that say it."""
    capabilities = capabilities_of(target)
    _refuse_unsupported(chat)
    if not chat.is_plain:
        chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=False)
    _drop_unsupported_hints(chat, capabilities, target)
    if _needs_tool(chat, capabilities):
        chat = add_structured_output_tool(chat, target)
    wire = without_none(
        model=target.model_name,
        messages=write_messages(chat, target, thinks=capabilities.thinks),
        stream=chat.stream or None,
        documents=write_documents(chat) or None,
        **write_tools(chat, target),
        **_sampling(chat, capabilities, target),
        thinking=_thinking(chat, capabilities, target),
        response_format=write_response_format(chat),
        **((chat.extra or {}) if chat.dialect == NAME else {}),
    )
    if "response_format" in wire and not _mentions_json(chat.messages):
        # Without a word of JSON in the conversation, a model that is bound to it may never end.
        wire["messages"] = [_JSON_PLEASE, *wire["messages"]]
    return chat, wire


def _refuse_unsupported(chat: Chat) -> None:
    """Raise InvalidRequest for what would change the answer's very shape and has no words here."""
    for param, asked in (
        ("n", (chat.n or 1) > 1),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
        ("image_config", bool(chat.image_config)),
    ):
        if asked:
            raise refused(f"{param} is not available from this model's provider", param)


def _drop_unsupported_hints(chat: Chat, capabilities: Capabilities, target: Target) -> None:
    for name in _LACKING:
        if getattr(chat, name) is not None:
            note_dropped(chat, target, name, f"{name} {_NO_FIELD}")

    def goes_back(block: Reasoning) -> bool:
        planned = block.format == PLAN_FORMAT or ToolCall in chat.kinds
        return bool(block.text) and (capabilities.thinks or planned)

    note_unsupported_fields(chat, target, NAME, marks=False, names=False, details=True, thinking=goes_back)


def _needs_tool(chat: Chat, capabilities: Capabilities) -> bool:
    """Return whether the answer's form is to be had by a tool alone: Cohere takes no form beside tools."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return False
    return bool(chat.tools) or (form.kind == "json_schema" and capabilities.structured_outputs == "tool")


def _sampling(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    wire: Record = {}
    for name in (*_SAME, *_RANGES, "stop"):
        value = getattr(chat, name)
        if value is None or value == []:
            continue
        if name in capabilities.unsupported:
            note_dropped(chat, target, name, f"{name} {_NO_FIELD}")
            continue
        if name == "top_k" and value < 0:
            # OpenAI-alikes write -1 for "all of them", which is the rule.
            continue
        least, most = _RANGES.get(name, (None, None))
        if least is not None and most is not None and not least <= value <= most:
            note_dropped(chat, target, name, f"this model's provider takes {name} from {least} to {most}")
            continue
        wire[_NAMES.get(name, name)] = value
    return wire


def _thinking(chat: Chat, capabilities: Capabilities, target: Target) -> Record | None:
    """Return how much to think: exactly so many tokens, or by an effort a share of the answer's limit."""
    asked = chat.reasoning
    if asked is None or (asked.effort is None and asked.max_tokens is None):
        return None
    if asked.effort == "none" and asked.max_tokens is None:
        return {"type": "disabled"} if capabilities.thinks else None
    if capabilities.reasoning_budget is None:
        note_dropped(
            chat, target, "reasoning_effort" if asked.max_tokens is None else "reasoning", "this model does not think"
        )
        return None
    budget = asked.max_tokens
    limit = chat.max_tokens or target.max_output
    if budget is None and asked.effort in _SHARES and limit is not None:
        most = capabilities.reasoning_budget.get("max", limit)
        budget = max(min(int(limit * _SHARES[asked.effort]), most), capabilities.reasoning_budget.get("min", 1), 1)
    return without_none(type="enabled", token_budget=budget)


def write_response_format(chat: Chat) -> Record | None:
    """Return the form that the answer must have."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return None
    schema = form.schema
    if schema is not None and form.description and "description" not in schema:
        schema = {"description": form.description, **schema}
    return without_none(type="json_object", json_schema=schema)


def _mentions_json(messages: list[Message]) -> bool:
    """Return whether a message mentions JSON."""
    return any("json" in part.text.lower() for message in messages for part in message.parts if isinstance(part, Text))
