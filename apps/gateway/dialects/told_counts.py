"""Counts that providers tell, read tolerantly: what is no count never costs the answer beside it."""

from __future__ import annotations

from typing import Any, Final

# No request has a billion tokens, or units; a count beyond is a provider's bug.
_MAX_COUNT: Final = 10**9


def read_count(value: Any) -> int:
    """Return a count; 0 for what is none: null, text, a boolean, less than nothing, more than can be."""
    if type(value) is int and 0 <= value <= _MAX_COUNT:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return int(value)
    return 0


def count_at(answer: Any, *path: str) -> int:
    """Return the count at a path of names through objects; 0 where there is none."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return read_count(answer)
