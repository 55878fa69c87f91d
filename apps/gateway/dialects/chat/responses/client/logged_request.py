"""OpenAI Responses, client side: what a log may keep of a request: as it was sent, else as the gateway changed it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target, ToolChoice
from apps.gateway.dialects.chat.responses.provider.capabilities import Capabilities
from apps.gateway.dialects.chat.responses.provider.write_items import write_input, write_instructions
from apps.gateway.dialects.chat.responses.provider.write_request import write_tools
from apps.gateway.dialects.chat.responses.shared.wire import INSTRUCTIONS, NAME
from apps.gateway.dialects.reading.fields import Record

_NULL: Final = msgspec.Raw(b"null")
_OUTPUTS: Final = "_output"
# As clients write: with everything of theirs.
_CLIENTS: Final = Capabilities(developer_role=True, takes=frozenset({"phase", "prompt_cache_breakpoint"}))
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read = msgspec.json.decode


def logged_request(chat: Chat) -> Record:
    """Return those of `messages` (the input's items), `tools`, `tool_choice` and `response_format` that are set.

    The instructions, which this format has beside the input, are the first message. Raises InvalidRequest for what the
    format cannot express, which never happens to a chat that was read from it.
    """
    if chat.source is not None and chat.source.dialect == NAME:
        wire: Record = {name: _read(raw) for name, raw in _read_fields(chat.source.body).items() if raw != _NULL}
    else:
        wire = _written(chat)
    logged: Record = {"messages": _items(wire)}
    logged |= {name: wire[name] for name in ("tools", "tool_choice") if name in wire}
    text = wire.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return logged if form is None else {**logged, "response_format": form}


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as the field `tool_choice`: names, and nothing that a client could hide in it."""
    if choice.allowed:
        tools = [{"type": "function", "name": name} for name in choice.allowed]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    return {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: items of theirs."""
    return [item for item in messages if str(item.get("type")).endswith(_OUTPUTS)]


def _items(wire: Record) -> list[Any]:
    given = wire.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    instructions = wire.get(INSTRUCTIONS)
    return items if instructions is None else [{"role": "system", "content": instructions}, *items]


def _written(chat: Chat) -> Record:
    target = Target(model_name=chat.model, facts={})
    wire: Record = {
        **write_instructions(chat),
        "input": write_input(chat, _CLIENTS, target),
        **write_tools(chat, _CLIENTS, target),
    }
    form = chat.response_format
    if form is None:
        return wire
    return {**wire, "text": {"format": {"type": form.kind, **({} if form.schema is None else {"schema": form.schema})}}}
