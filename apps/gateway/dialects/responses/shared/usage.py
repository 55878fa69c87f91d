"""OpenAI Responses: token usage, read into disjoint classes.

The counts are OpenAI's under other names: the input has what came out of a cache, the output has the thinking. Must
never know a price.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.dialects.openai.shared import usage as openai_usage
from apps.gateway.dialects.told_counts import has_odd_count
from apps.kernel.usage import Usage

_NAMES: Final = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "total_tokens": "total_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
    "cost_in_usd_ticks": "cost_in_usd_ticks",
}


# Calls of tools that xAI counts, by the names of price cards; searches of the web are told apart.
_TOOL_COUNTS: Final = {
    "x_search_calls": "x_search",
    "code_interpreter_calls": "code_interpreter",
    "file_search_calls": "file_search",
    "document_search_calls": "document_search",
}


def read_usage(reported: Any, searches: int, tool_calls: dict[str, int] | None = None) -> Usage | None:
    """Return the counts, or None when none are reported; `searches` of the web and `tool_calls` are what was seen in
    the answer: they hold where the provider does not count them itself."""
    if not isinstance(reported, dict):
        return None
    usage = openai_usage.read_usage({ours: reported[name] for name, ours in _NAMES.items() if name in reported})
    if usage is None:
        return None
    counted = reported.get("server_side_tool_usage_details")
    if isinstance(counted, dict):
        calls = {name: openai_usage.count_of(counted, field) for field, name in _TOOL_COUNTS.items()}
        tool_calls = {name: count for name, count in calls.items() if count} or None
        searches = openai_usage.count_of(counted, "web_search_calls")
        if has_odd_count(counted, "web_search_calls", *_TOOL_COUNTS):
            usage = replace(usage, estimated=True)
    return replace(usage, web_searches=searches, tool_calls=tool_calls)
