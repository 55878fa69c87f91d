"""Anthropic Messages, provider side: writes `system` and `messages`; user and assistant alternate, tool results come
first.

Thinking goes back under the signatures that are wanted. With a budget for thinking, a turn in which tools are being
called is refused unless it begins with the thinking that it began with; where the model decides for itself how much it
thinks, it is not.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable

import msgspec

from apps.gateway.canonical.chat import (
    Chat,
    File,
    FunctionTool,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    Piece,
    Reasoning,
    Refusal,
    Target,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, object_root
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.anthropic.wire import NAME, SIGNATURE_FORMAT, cache_control, call_id, read_input
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest

_WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_ANY_OBJECT: Record = {"type": "object", "properties": {}}
_MODES = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}


def write_tools(wire: Record, chat: Chat, target: Target, *, same_dialect: bool) -> None:
    """Add tools and the choice among them. Raises InvalidRequest for one that only another format has words for."""
    choice = chat.tool_choice
    asked = chat.tools or []
    if chat.web_search and not any(isinstance(tool, WebSearchTool) for tool in asked):
        asked = [*asked, WebSearchTool()]
    tools = [_tool(tool, f"tools[{at}]", target, same_dialect=same_dialect) for at, tool in enumerate(asked)]
    if choice is not None and choice.allowed:
        tools = [tool for tool in tools if tool["name"] in choice.allowed]
    if not tools and not same_dialect:
        tools = _tools_of_history(chat)
    if tools:
        wire["tools"] = tools
        if choice is not None or chat.parallel_tool_calls is False:
            wire["tool_choice"] = tool_choice_of(choice or ToolChoice(mode="auto"), chat.parallel_tool_calls)


def _tool(tool: Tool, place: str, target: Target, *, same_dialect: bool) -> Record:
    if isinstance(tool, FunctionTool):
        wire: Record = {"name": tool.name}
        if tool.description is not None:
            wire["description"] = tool.description
        wire["input_schema"] = (tool.parameters or _ANY_OBJECT) if same_dialect else _parameters(tool, place)
        if tool.strict is not None:
            wire["strict"] = tool.strict
        return with_cache_mark({**(tool.extra or {}), **wire} if same_dialect else wire, tool)
    if isinstance(tool, WebSearchTool):
        return _search(tool, place, target, same_dialect=same_dialect)
    if isinstance(tool, OpaqueTool) and tool.dialect == NAME:
        return dict(tool.data)
    raise InvalidRequest(
        "A tool is of a kind that this model's provider does not have", code="unsupported_feature", param=place
    )


def _parameters(tool: FunctionTool, place: str) -> Record:
    try:
        return object_root(tool.parameters)
    except UnsupportedSchema:
        raise InvalidRequest(
            "A function's parameters must be an object for this model's provider",
            code="unsupported_feature",
            param=f"{place}.function.parameters",
        ) from None


def _search(tool: WebSearchTool, place: str, target: Target, *, same_dialect: bool) -> Record:
    wire: Record = {**_WEB_SEARCH, **((tool.extra or {}) if same_dialect else {})}
    if (most := tool.max_uses or target.max_searches) is not None:
        wire["max_uses"] = most
    if tool.user_location is not None:
        wire["user_location"] = tool.user_location if same_dialect else {"type": "approximate", **tool.user_location}
    if tool.search_context_size is not None:
        target.note_dropped(f"{place}.search_context_size", "the provider's search decides that by itself")
    return with_cache_mark(wire, tool)


def _tools_of_history(chat: Chat) -> list[Record]:
    """Return the tools that were called before: a conversation with calls is refused without them."""
    parts = [part for message in chat.messages for part in message.parts]
    names = dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall))
    if not names and any(isinstance(part, ToolResult) for part in parts):
        names = {"tool": None}
    return [{"name": name, "input_schema": _ANY_OBJECT} for name in names]


def tool_choice_of(choice: ToolChoice, parallel: bool | None) -> Record:
    """Return a choice of tools, and whether one is called at a time, as the field says it."""
    wire: Record = {"type": _MODES[choice.mode]}
    if choice.mode == "named":
        wire["name"] = choice.name
    if parallel is False and choice.mode != "none":
        wire["disable_parallel_tool_use"] = True
    return wire


_INSTRUCTIONS = frozenset({"system", "developer"})
_DATA_URL = "data:"
_NOTHING: Record = {"type": "text", "text": "."}


def split_system(messages: list[Message]) -> tuple[list[Part], list[Message]]:
    """Return the instructions that a conversation begins with, and the rest of it."""
    count = 0
    for message in messages:
        if message.role not in _INSTRUCTIONS or not all(isinstance(part, Text) for part in message.parts):
            break
        count += 1
    return [part for message in messages[:count] for part in message.parts], messages[count:]


def write_messages(messages: Iterable[Message], *, same_dialect: bool) -> list[Record]:
    """Return the turns. Neighbors of one role are merged, and what says nothing is left out; a user who says nothing at
    all says ".". Instructions in mid-conversation stay where they are: within the user's turn, marked, unless the
    client wrote them in this format itself. Raises InvalidRequest for what the format has no words for.
    """
    turns: list[Record] = []
    before = ""
    for message in messages:
        role, blocks = _turn(message, same_dialect=same_dialect)
        if not blocks:
            if same_dialect and role == "system" and message.extra:
                turns.append({"role": role, **message.extra})
            continue
        # Messages that the client wrote separately stay separate, except results that belong to a user's turn.
        if turns and turns[-1]["role"] == role and (not same_dialect or before == "tool"):
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
        before = message.role
        if message.extra and same_dialect:
            turns[-1] = {**message.extra, **turns[-1]}
    if not same_dialect and (not turns or turns[0]["role"] != "user"):
        turns.insert(0, {"role": "user", "content": [_NOTHING]})
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=_results_first)
        if "content" in turn:
            turn["content"] = _as_string(turn["content"])
    return turns


def _results_first(block: Record) -> bool:
    return bool(block["type"] != "tool_result")


def _turn(message: Message, *, same_dialect: bool) -> tuple[str, list[Record]]:
    """Return the role that speaks, and what it says."""
    blocks = [
        block for part in message.parts if (block := _block(part, message.role, same_dialect=same_dialect)) is not None
    ]
    if message.role == "assistant":
        return "assistant", blocks
    if message.role not in _INSTRUCTIONS:
        return "user", blocks or [_NOTHING]
    if same_dialect:
        return "system", blocks
    if blocks and "text" in blocks[0] and "text" in blocks[-1]:
        blocks[0]["text"] = f"<system>\n{blocks[0]['text']}"
        blocks[-1]["text"] = f"{blocks[-1]['text']}\n</system>"
    return "user", blocks


def write_system(parts: list[Part], *, same_dialect: bool) -> str | list[Record] | None:
    """Return the system prompt; None when it says nothing."""
    return (
        _as_string(
            [block for part in parts if (block := _block(part, "system", same_dialect=same_dialect)) is not None]
        )
        or None
    )


def _as_string(blocks: list[Record]) -> str | list[Record]:
    """Return plain text alone as the string that means the same."""
    if len(blocks) == 1 and blocks[0].keys() == _NOTHING.keys() and blocks[0]["type"] == "text":
        return str(blocks[0]["text"])
    return blocks


def _block(part: Part, role: str, *, same_dialect: bool) -> Record | None:
    """Return a block; None for what says nothing here. Raises InvalidRequest for what the format has no words for."""
    match part:
        case Text() | Refusal():
            wire: Record | None = {"type": "text", "text": part.text} if part.text.strip() else None
        case Reasoning():
            wire = _thinking(part)
        case ToolCall():
            wire = {"type": "tool_use", "id": call_id(part.id), "name": part.name, "input": read_input(part.arguments)}
        case ToolResult():
            wire = _result(part, same_dialect=same_dialect)
        case Image():
            # This format has no block for images that a model made.
            wire = None if role == "assistant" else {"type": "image", "source": _image(part.url)}
        case File():
            wire = {"type": "document", "source": _document(part)}
            if part.filename is not None:
                wire["title"] = part.filename
        case Opaque(dialect=dialect, data=data) if dialect == NAME:
            return dict(data)
        case _:
            raise InvalidRequest(
                "A message holds content that this model's provider has no form for",
                code="unsupported_feature",
                param="messages",
            )
    if wire is not None:
        if part.extra and same_dialect:
            wire = {**part.extra, **wire}
        with_cache_mark(wire, part)
    return wire


def with_cache_mark(wire: Record, piece: Piece) -> Record:
    """Add a block's or a tool's cache mark."""
    if piece.cache is not None:
        wire["cache_control"] = cache_control(piece.cache)
    return wire


def is_signed(part: Part) -> bool:
    """Return whether a part is anything but thinking that Anthropic did not sign, and would refuse."""
    return not isinstance(part, Reasoning) or _thinking(part) is not None


def _thinking(part: Reasoning) -> Record | None:
    """Return thinking under Anthropic's own signature; any other is refused there."""
    if part.format not in (None, SIGNATURE_FORMAT):
        return None
    if part.data is not None:
        return {"type": "redacted_thinking", "data": part.data} if part.format == SIGNATURE_FORMAT else None
    if part.signature is None:
        return None
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _result(result: ToolResult, *, same_dialect: bool) -> Record:
    wire: Record = {"type": "tool_result", "tool_use_id": call_id(result.call_id)}
    blocks = [block for part in result.parts if (block := _block(part, "tool", same_dialect=same_dialect)) is not None]
    if blocks:
        wire["content"] = _as_string(blocks)
    if result.is_error:
        wire["is_error"] = True
    return wire


def _image(url: str) -> Record:
    if not url.startswith(_DATA_URL):
        return {"type": "url", "url": url}
    media_type, data = split_data_url(url)
    return {"type": "base64", "media_type": "image/jpeg" if media_type == "image/jpg" else media_type, "data": data}


def split_data_url(url: str) -> tuple[str, str]:
    """Return the media type and the base64 of a data URL."""
    head, _, data = url.removeprefix(_DATA_URL).partition(",")
    return head.partition(";")[0], data


def _document(file: File) -> Record:
    """Return a document's source; PDF is the default type, as no other kind is sent in base64."""
    if file.url is not None:
        return {"type": "url", "url": file.url}
    if file.data is None:
        return {"type": "file", "file_id": file.file_id}
    media_type, data = file.media_type, file.data
    if data.startswith(_DATA_URL):
        media_type, data = split_data_url(data)
    if media_type == "text/plain":
        try:
            return {"type": "text", "media_type": media_type, "data": b64decode(data).decode()}
        except ValueError:
            pass
    return {"type": "base64", "media_type": media_type or "application/pdf", "data": data}


def signature_format(chat: Chat, target: Target) -> str | None:
    """Return whose signatures are wanted back: our own, when the model is to think."""
    asked = chat.reasoning
    if asked is not None and asked.max_tokens is not None:
        return SIGNATURE_FORMAT
    effort = asked.effort if asked is not None and asked.effort is not None else chat.effort
    if effort not in {None, "none"}:
        return SIGNATURE_FORMAT
    # A client of this very format may leave it to the model.
    stated = (chat.extra or {}).get("thinking")
    return SIGNATURE_FORMAT if isinstance(stated, dict) and stated.get("type") in ("enabled", "adaptive") else None


def drop_thinking(wire: Record, chat: Chat, target: Target) -> None:
    """Switch thinking off for a request that would be refused with it: its open turn has lost its thinking."""
    stated = wire.get("thinking")
    thinking = msgspec.json.decode(stated) if isinstance(stated, msgspec.Raw) else stated
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled" or not _lacks_thinking(chat.messages):
        return
    del wire["thinking"]
    note_dropped(
        chat, target, "reasoning", "the thinking that led to the latest calls did not come back, so there is none now"
    )


def _lacks_thinking(messages: list[Message]) -> bool:
    """Return whether a conversation ends in a turn of calls and their results that does not begin with thinking."""
    if messages[-1].role == "assistant":
        return False
    turn: list[Message] = []
    for message in reversed(messages):
        if message.role == "user" and message is not messages[-1]:
            break
        turn.append(message)
    answers = [message for message in reversed(turn) if message.role == "assistant"]
    if not answers or not any(isinstance(part, ToolCall) for part in answers[-1].parts):
        return False
    # Thinking under another's signature is not sent.
    begins = next((part for part in answers[0].parts if is_signed(part)), None)
    return not isinstance(begins, Reasoning)
