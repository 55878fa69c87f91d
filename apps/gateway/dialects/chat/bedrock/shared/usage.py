"""Bedrock Converse: token usage, read into disjoint classes.

Bedrock's `inputTokens` leave out what was read from or written to the cache; thinking is inside `outputTokens` and not
told apart. Nonsense is tolerated: every class is at least 0. Must never know a price.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.dialects.reading.told_counts import has_odd_count, read_count
from apps.kernel.usage import Usage

_MAIN = ("inputTokens", "outputTokens")


def read_usage(reported: Any) -> Usage | None:
    """Return the counts, or None when none are reported.

    `cacheDetails` say how long what was written is kept; what they do not speak of counts as 5-minute.
    """
    if not isinstance(reported, dict):
        return None
    hour = shorter = 0
    details = reported.get("cacheDetails")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            count = read_count(detail.get("inputTokens"))
            hour, shorter = (hour + count, shorter) if detail.get("ttl") == "1h" else (hour, shorter + count)
    hour, shorter = read_count(hour), read_count(shorter)
    usage = Usage(
        input=read_count(reported.get("inputTokens")),
        cache_read=read_count(reported.get("cacheReadInputTokens")),
        cache_write=max(read_count(reported.get("cacheWriteInputTokens")) - hour, shorter),
        cache_write_1h=hour,
        output=read_count(reported.get("outputTokens")),
        estimated=has_odd_count(reported, "cacheReadInputTokens", "cacheWriteInputTokens", main=_MAIN)
        or any(has_odd_count(detail, "inputTokens") for detail in (details if isinstance(details, list) else ())),
    )
    return usage if usage.total_tokens else None
