"""Parses tools and results of MCP servers; unknown fields are dropped. Pure.

Icons by address and metadata of the server are dropped, because clients would load and follow them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.mcp_servers.upstream.failures import McpServerFailed

# Tools of one server, characters of a tool's name, blocks of a result.
MAX_TOOLS, MAX_NAME, MAX_BLOCKS = 500, 128, 1_000
_MEMBERS: Final = ("title", "description", "outputSchema", "annotations")
_TYPES: Final = {"title": str, "description": str, "outputSchema": dict, "annotations": dict}
# Results that are complete; others need input from the client first (revision 2026-07-28), which is not supported.
_COMPLETE: Final = (None, "complete")


class Tool(msgspec.Struct, frozen=True):
    """A tool: its name, and its complete definition for clients, including the name."""

    name: str
    definition: dict[str, Any]

    @property
    def has_effects(self) -> bool | None:
        """Whether its annotations say that it changes something (`readOnlyHint`, `destructiveHint`); None if they do
        not."""
        hints = self.definition.get("annotations")
        if not isinstance(hints, dict):
            return None
        if isinstance(hints.get("readOnlyHint"), bool):
            return not hints["readOnlyHint"]
        return True if hints.get("destructiveHint") is True else None


class ToolAnswer(msgspec.Struct, frozen=True):
    """A tool's answer: content blocks, structured data if any, and whether the tool reported an error."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of its blocks, joined."""
        texts = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))


def read_tools(page: dict[str, Any]) -> Iterator[Tool]:
    """Yield the callable tools on a page of a list. Raises McpServerFailed if there is no list.

    A tool that must be called as a task (revision 2025-11-25) is dropped, because tasks are not supported.
    """
    listed = page.get("tools")
    if not isinstance(listed, list):
        raise McpServerFailed("The MCP server's list of tools is invalid")
    for one in listed:
        if isinstance(one, dict) and _is_name(one.get("name")) and not _demands_task(one):
            yield Tool(one["name"], _definition_of(one))


def read_result(result: dict[str, Any]) -> ToolAnswer:
    """Return a tool's answer. Raises McpServerFailed for an invalid result."""
    if result.get("resultType") not in _COMPLETE:
        raise McpServerFailed("The MCP server requests input from the user, which is not supported")
    if "task" in result and "content" not in result:
        raise McpServerFailed("The MCP server answered with a task, which was not requested")
    content, structured = result.get("content", []), result.get("structuredContent")
    if not isinstance(content, list) or not all(_is_block(block) for block in content):
        raise McpServerFailed("The MCP server's result has invalid content")
    if len(content) > MAX_BLOCKS:
        raise McpServerFailed(f"The MCP server's result has more than {MAX_BLOCKS} blocks", code="mcp_answer_too_large")
    if structured is not None and not isinstance(structured, dict):
        structured = None
    blocks = [{name: value for name, value in block.items() if name != "_meta"} for block in content]
    return ToolAnswer(blocks, structured, result.get("isError") is True)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable() and name.strip() == name


def _demands_task(tool: dict[str, Any]) -> bool:
    execution = tool.get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def _is_block(block: object) -> bool:
    return isinstance(block, dict) and isinstance(block.get("type"), str)


def _definition_of(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    definition = {"name": tool["name"], "inputSchema": schema if isinstance(schema, dict) else {"type": "object"}}
    return definition | {name: tool[name] for name in _MEMBERS if isinstance(tool.get(name), _TYPES[name])}
