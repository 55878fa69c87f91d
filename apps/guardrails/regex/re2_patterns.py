"""Regular expressions as the rules use them: linear, silent, over UTF-8.

Knows the engine of expressions. Must never know what is looked for.
"""

from __future__ import annotations

import re2

_MOST_MEMORY = 64 << 20


def re2_options() -> re2.Options:
    """Return how every pattern is compiled: with room for its states, and without a word on standard error."""
    chosen = re2.Options()
    chosen.max_mem = _MOST_MEMORY
    chosen.log_errors = False
    return chosen


def compile_re2(pattern: str) -> re2._Regexp:
    """Return a pattern ready to search UTF-8."""
    return re2.compile(pattern, re2_options())


def find_last_end(pattern: re2._Regexp, utf8: bytes, match: re2._Match[bytes]) -> int:
    """Return where the last match from `match` on ends: by halves, for one end of a text is as far as the other."""
    end: int = match.end()
    first, beyond = match.start() + 1, len(utf8)
    while first < beyond:
        middle = (first + beyond) // 2
        later = pattern.search(utf8, middle)
        if later is None:
            beyond = middle
        else:
            first, end = later.start() + 1, max(end, later.end())
    return end
