"""OpenAI Chat Completions, client side: the request as the log keeps it, as sent or as the gateway changed it."""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.canonical.chat import Chat, ToolChoice, WebSearchTool
from apps.gateway.dialects.chat.openai.provider.capabilities import Capabilities
from apps.gateway.dialects.chat.openai.provider.passthrough import read_fields
from apps.gateway.dialects.chat.openai.provider.write_messages import with_cache_mark
from apps.gateway.dialects.chat.openai.provider.write_request import tool_choice_of, written
from apps.gateway.dialects.chat.openai.shared.wire import NAME
from apps.gateway.dialects.reading.fields import Record

_FIELDS = ("messages", "tools", "tool_choice", "response_format")
_NULL = msgspec.Raw(b"null")
# As clients write: with everything of theirs and of ours.
_CLIENTS = Capabilities(
    developer_role=True,
    reasoning_field="reasoning",
    tool_call_ids="any",
    takes=frozenset({"reasoning_details", "images", "cache_control"}),
    same_dialect=True,
)


def logged_request(chat: Chat) -> Record:
    """Return those of `messages`, `tools`, `tool_choice` and `response_format` that are set; values may be JSON bytes.

    Raises InvalidRequest for what the format cannot express, which never happens to a chat that was read from it.
    """
    if chat.source is not None and chat.source.dialect == NAME:
        wire: Record = {name: raw for name, raw in read_fields(chat.source.body).items() if raw != _NULL}
    else:
        wire = written(chat, _CLIENTS)
        searches = [tool for tool in chat.tools or () if isinstance(tool, WebSearchTool)]
        if searches:
            wire["tools"] = [*wire["tools"], *map(_search, searches)]
    return {name: wire[name] for name in _FIELDS if name in wire}


def logged_choice(choice: ToolChoice, parallel: bool | None) -> str | Record:
    """Return a choice of tools as the field `tool_choice`: names, and nothing that a client could hide in it."""
    return tool_choice_of(choice)


def logged_results(messages: list[Any]) -> list[Any]:
    """Return what tools answered: messages of theirs."""
    return [message for message in messages if message.get("role") in ("tool", "function")]


def _search(tool: WebSearchTool) -> Record:
    limits = {name: getattr(tool, name) for name in ("user_location", "search_context_size", "max_uses")}
    stated = {name: value for name, value in limits.items() if value is not None}
    return with_cache_mark({"type": "web_search", **stated, **(tool.extra or {})}, tool, _CLIENTS)
