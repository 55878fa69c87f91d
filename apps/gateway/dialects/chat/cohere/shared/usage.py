"""Cohere Chat v2: token usage, read into disjoint classes.

Knows that there are two counts. `billed_units` is what is charged: without the instructions that Cohere itself puts
before every prompt, and without thinking. `tokens` is all that the model read and wrote; it counts only where nothing
is said of the bill. Must never know a price.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.dialects.chat.cohere.shared.wire import Record
from apps.gateway.dialects.reading.told_counts import count_at, has_odd_count
from apps.kernel.usage import Usage

_MAIN = ("input_tokens", "output_tokens")


def read_usage(reported: Any) -> Usage | None:
    """Return the counts, or None when none are reported.

    What came out of a cache is counted from the beginning of everything that was read: where the bill has less than
    that, so much is counted as cached as must be.
    """
    if not isinstance(reported, dict):
        return None
    billed, all_of_it = _inside(reported, "billed_units"), _inside(reported, "tokens")
    counts = billed if count_at(billed, "input_tokens") or count_at(billed, "output_tokens") else all_of_it
    prompt, written = count_at(counts, "input_tokens"), count_at(counts, "output_tokens")
    if not prompt and not written:
        return None
    free = max(count_at(all_of_it, "input_tokens") - prompt, 0)
    cached = min(max(count_at(reported, "cached_tokens") - free, 0), prompt)
    odd = has_odd_count(counts, main=_MAIN) or has_odd_count(reported, "cached_tokens")
    return Usage(input=prompt - cached, cache_read=cached, output=written, estimated=odd)


def _inside(record: Record, name: str) -> Record:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
