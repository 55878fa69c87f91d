"""Anthropic Messages: earlier calls of server tools, which a model gets as uses of tools and their results.

In an answer both are in one message of the assistant's; a model's own format has results in the user's. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.dialects.reading.fields import Record
from apps.gateway.server_tools.toolset import Toolset
from apps.mcp_servers.tool_names import joined_name

_USE, _RESULT = "mcp_tool_use", "mcp_tool_result"
OURS: Final = frozenset({_USE, _RESULT})
# Characters of a server's name that precede the name of a tool that is no longer offered.
_MAX_NAME_LENGTH: Final = 40


def plain_messages(messages: list[Any], toolset: Toolset) -> list[Any]:
    """Return a conversation without blocks of server tools."""
    plain: list[Any] = []
    results: list[Record] = []
    for message in messages:
        if results:
            message, results = _with_results(message, results, plain), []
        if message is None:
            continue
        if not _has_ours(message):
            plain.append(message)
            continue
        said: list[Any] = []
        for block in message["content"]:
            if _kind_of(block) == _RESULT:
                results.append(_result(block))
                continue
            if results:
                # The model went on when it had read them.
                plain += [{**message, "content": said}, {"role": "user", "content": results}]
                said, results = [], []
            said.append(_use(block, toolset) if _kind_of(block) == _USE else block)
        if said:
            plain.append({**message, "content": said})
    if results:
        plain.append({"role": "user", "content": results})
    return plain


def _with_results(message: Any, results: list[Record], plain: list[Any]) -> Any:
    """Return a message with the results before it, where it is the user's; else they are a message of their own."""
    if not isinstance(message, dict) or message.get("role") != "user":
        plain.append({"role": "user", "content": results})
        return message
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    return {**message, "content": [*results, *blocks]}


def _has_ours(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(_kind_of(block) in OURS for block in content)


def _kind_of(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _use(block: Record, toolset: Toolset) -> Record:
    server, name = str(block.get("server_name") or ""), str(block.get("name") or "tool")
    function = toolset.function_of(server, name) or joined_name(server[:_MAX_NAME_LENGTH], name)
    return {**_kept(block, "id", "input", "cache_control"), "type": "tool_use", "name": function}


def _result(block: Record) -> Record:
    return {**_kept(block, "tool_use_id", "content", "is_error", "cache_control"), "type": "tool_result"}


def _kept(block: Record, *names: str) -> Record:
    return {name: block[name] for name in names if block.get(name) is not None}
