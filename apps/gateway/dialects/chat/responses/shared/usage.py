"""OpenAI Responses: token usage, read into disjoint classes.

The counts are OpenAI's under other names: the input includes cached tokens, the output includes thinking.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.dialects.chat.openai.shared import usage as openai_usage
from apps.gateway.dialects.reading.reported_counts import has_odd_count
from apps.kernel.usage import Usage

_NAMES: Final = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "total_tokens": "total_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
    "cost_in_usd_ticks": "cost_in_usd_ticks",
}


# Calls of tools that xAI counts, by the names of price cards; web searches are counted separately.
_TOOL_COUNTS: Final = {
    "x_search_calls": "x_search",
    "code_interpreter_calls": "code_interpreter",
    "file_search_calls": "file_search",
    "document_search_calls": "document_search",
}
# How Perplexity names its searches of the web, and its other tools by the names of price cards.
_SEARCHED: Final = "search_web"
_INVOKED: Final = {
    "fetch_url": "fetch_url",
    "search_people": "people_search",
    "finance_search": "finance_search",
    "sandbox": "sandbox",
}


def read_usage(reported: Any, searches: int, tool_calls: dict[str, int] | None = None) -> Usage | None:
    """Return the counts, or None when none are reported; `searches` of the web and `tool_calls` were counted in the
    answer: they are used where the provider does not count them itself."""
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
    if isinstance(counted := reported.get("tool_calls_details"), dict):
        calls = {name: _invocations(counted, field) for field, name in _INVOKED.items()}
        tool_calls = {name: count for name, count in calls.items() if count} or None
        searches = _invocations(counted, _SEARCHED)
        is_odd = any(has_odd_count(counted.get(name), "invocation") for name in (_SEARCHED, *_INVOKED))
        told = openai_usage.stated_cost(counted.get(_SEARCHED), "cost_usd")
        usage = replace(usage, reported_search_cost=told, estimated=usage.estimated or is_odd)
    return replace(usage, web_searches=searches, tool_calls=tool_calls)


def _invocations(counted: dict[str, Any], name: str) -> int:
    calls = counted.get(name)
    return openai_usage.count_of(calls, "invocation") if isinstance(calls, dict) else 0
