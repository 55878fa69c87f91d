"""OpenAI Responses: calls that a provider runs itself, in items of the type of a client's calls."""

from __future__ import annotations

from typing import Any, Final

# How xAI calls the steps of its `x_search`.
_STEPS_OF_X_SEARCH: Final = frozenset(
    {"x_keyword_search", "x_semantic_search", "x_user_search", "x_thread_fetch", "view_x_video"}
)


def is_hosted_call(item: dict[str, Any]) -> bool:
    """Return whether an item is a call that its provider runs: no client answers it."""
    return item.get("type") == "custom_tool_call" and item.get("name") in _STEPS_OF_X_SEARCH
