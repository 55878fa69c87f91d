"""Hosted tools: those that a provider runs itself and is paid for beside tokens, by the names that price cards know.

A tool that the client runs, or that costs nothing but the tokens it brings (remote MCP servers, Gemini's code execution
and URL context), is none of them. Searches of the web have prices of their own. Pure: it returns the number of calls to
hold for, which is also the limit sent to providers that take one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, OpaqueTool, WebSearchTool

# Searches, and calls of any other tool, that an answer may make where the client states no limit: so many are held for.
DEFAULT_CALLS: Final = 10
# More calls than this are not held for, whatever the client states.
MAX_CALLS: Final = 1_000
# Tools that are paid once for an answer, however often they are called: by the container.
_ONCE: Final = frozenset({"code_interpreter", "code_execution"})
# Searches posts on X.
X_SEARCH: Final = "x_search"
_OPENAI: Final = ("code_interpreter", "file_search", "image_generation", X_SEARCH)
_GOOGLE: Final = {
    "googleMaps": "google_maps",
    "googleSearchRetrieval": "google_search_retrieval",
    "enterpriseWebSearch": "enterprise_web_search",
    "retrieval": "retrieval",
}
CODE_EXECUTION: Final = "code_execution"
_ANTHROPIC: Final = (CODE_EXECUTION, "web_fetch")
# Versions of Anthropic's searches and fetches from this day on run code themselves, which makes all code free.
_FREE_CODE_SINCE: Final = 20260209


def hosted_tools(chat: Chat) -> Iterator[tuple[int, str, int]]:
    """Yield the place of each hosted tool that a chat offers to the model, its name, and how often it may be called."""
    for at, tool in enumerate(chat.tools or ()):
        if isinstance(tool, OpaqueTool) and isinstance(tool.data, dict) and (name := _name_of(tool)):
            most = _limit(tool.data.get("max_uses")) or _stated_calls(chat) or DEFAULT_CALLS
            yield at, name, 1 if name in _ONCE else min(most, MAX_CALLS)


def runs_code_free(chat: Chat) -> bool:
    """Return whether code that Anthropic runs for a chat costs nothing: beside a search or a fetch that runs code
    itself, and in a container of an earlier answer, which was paid for then."""
    kinds = []
    for tool in chat.tools or ():
        own = tool.data if isinstance(tool, OpaqueTool) else tool.extra
        kinds.append(own.get("type") if isinstance(own, dict) else None)
    container = (chat.extra or {}).get("container")
    if isinstance(container, dict):
        container = container.get("id")
    return isinstance(container, str) or any(isinstance(kind, str) and _makes_code_free(kind) for kind in kinds)


def _makes_code_free(kind: str) -> bool:
    name, _, day = kind.rpartition("_")
    return name in {"web_search", "web_fetch"} and day.isdecimal() and int(day) >= _FREE_CODE_SINCE


def count_searches(chat: Chat) -> int:
    """Return how many searches of the web a chat may lead to: as the client limits them, else the default."""
    most = _stated_calls(chat) or DEFAULT_CALLS
    limits = [tool.max_uses or most for tool in chat.tools or () if isinstance(tool, WebSearchTool)]
    return max(limits, default=most if chat.web_search else 0)


def _stated_calls(chat: Chat) -> int | None:
    """Return how many calls of all tools together a client of OpenAI's Responses allows; None where it does not say."""
    return _limit(chat.extra.get("max_tool_calls")) if chat.extra is not None and chat.dialect == "responses" else None


def _limit(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


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
