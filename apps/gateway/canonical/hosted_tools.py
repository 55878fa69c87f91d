"""Hosted tools: those that a provider runs itself and is paid for beside tokens, by the names that price cards know.

A tool that the client runs, or that costs nothing but the tokens it brings (remote MCP servers, Gemini's code execution
and URL context), is none of them. Searches of the web have prices of their own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, OpaqueTool

# Calls of a tool that an answer usually makes at most, where the client does not limit them.
USUAL_CALLS: Final = 5
# Tools that are paid once for an answer, however often they are called: a container, a grounded prompt.
_ONCE: Final = frozenset({"code_interpreter", "google_maps", "code_execution"})
# Searches posts on X.
X_SEARCH: Final = "x_search"
_OPENAI: Final = ("code_interpreter", "file_search", "image_generation", X_SEARCH)
_GOOGLE: Final = {
    "googleMaps": "google_maps",
    "googleSearchRetrieval": "google_search_retrieval",
    "enterpriseWebSearch": "enterprise_web_search",
    "retrieval": "retrieval",
}
_ANTHROPIC: Final = ("code_execution", "web_fetch")


def hosted_tools(chat: Chat) -> Iterator[tuple[int, str, int]]:
    """Yield the place of each hosted tool that a chat offers to the model, its name, and how often it may be called."""
    for at, tool in enumerate(chat.tools or ()):
        if isinstance(tool, OpaqueTool) and isinstance(tool.data, dict) and (name := _name_of(tool)):
            most = tool.data.get("max_uses")
            limited = most if type(most) is int and most > 0 else USUAL_CALLS
            yield at, name, 1 if name in _ONCE else min(limited, 1_000)


def _name_of(tool: OpaqueTool) -> str:
    data: dict[str, Any] = tool.data
    if tool.dialect == "google":
        return _GOOGLE.get(next(iter(data), ""), "")
    kind = data.get("type")
    if not isinstance(kind, str):
        return ""
    if tool.dialect == "anthropic":
        return next((name for name in _ANTHROPIC if kind.startswith(f"{name}_")), "")
    if kind == "shell" and isinstance(place := data.get("environment"), dict):
        # In a container of the provider's; without one the client runs it.
        return "shell" if str(place.get("type", "")).startswith("container") else ""
    return kind if kind in _OPENAI else ""
