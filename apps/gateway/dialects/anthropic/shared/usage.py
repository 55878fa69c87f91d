"""Anthropic Messages, both sides: token usage, read into disjoint classes and written for clients.

Anthropic's `input_tokens` leave out what was read from or written to the cache. Nonsense is tolerated: every class is
at least 0. Must never know a price.
"""

from __future__ import annotations

from typing import Any

from apps.kernel.usage import Usage

Record = dict[str, Any]

# Counts that are read and written here; what else is said in `usage` is passed on.
COUNTS = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "cache_creation",
        "server_tool_use",
        "output_tokens_details",
    }
)
# No answer has a billion tokens; a count beyond is a provider's bug.
_MOST = 10**9


def read_usage(reported: Record) -> Usage | None:
    """Return the counts, or None when none are reported: a prompt has at least one token.

    The 5-minute and 1-hour parts of what was cached may fall short of the total: the rest counts as 5-minute.
    """
    cache = reported.get("cache_creation")
    split: Record = cache if isinstance(cache, dict) else {}
    hour = _count(split, "ephemeral_1h_input_tokens")
    written = max(_count(reported, "cache_creation_input_tokens"), hour + _count(split, "ephemeral_5m_input_tokens"))
    output = _count(reported, "output_tokens")
    details, searches = reported.get("output_tokens_details"), reported.get("server_tool_use")
    thought = min(_count(details, "thinking_tokens"), output)
    usage = Usage(
        input=_count(reported, "input_tokens"),
        cache_read=_count(reported, "cache_read_input_tokens"),
        cache_write=written - hour,
        cache_write_1h=hour,
        output=output - thought,
        reasoning=thought,
        web_searches=_count(searches, "web_search_requests"),
    )
    return usage if usage.total_tokens else None


def write_usage(usage: Usage) -> Record:
    """Return `usage`."""
    written = usage.cache_write + usage.cache_write_1h
    wire: Record = {
        "input_tokens": usage.prompt_tokens - usage.cache_read - written,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cache_read,
    }
    if written:
        wire["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        }
    if usage.reasoning:
        wire["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if usage.web_searches:
        # Clients expect both numbers where there is one; no page is ever fetched for its own sake.
        wire["server_tool_use"] = {"web_search_requests": usage.web_searches, "web_fetch_requests": 0}
    return wire


def _count(record: Any, name: str) -> int:
    value = record.get(name) if isinstance(record, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return int(value)
    return 0
