"""RE2 patterns of the system rules: linear time, over UTF-8.

Knows the engine of expressions. Must never know what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import re2

_MOST_MEMORY = 64 << 20
# Patterns of one automaton. While the library makes one, no other thread of the process goes on: for 270 patterns that
# was 210 ms.
_PATTERNS_EACH = 64


def re2_options() -> re2.Options:
    """Return how every pattern is compiled: with room for its states, and without a word on standard error."""
    chosen = re2.Options()
    chosen.max_mem = _MOST_MEMORY
    chosen.log_errors = False
    return chosen


def compile_re2(pattern: str) -> re2._Regexp:
    """Return a pattern ready to search UTF-8."""
    return re2.compile(pattern, re2_options())


class PatternSet:
    """Patterns that are searched for together, in one pass for every 64 of them."""

    def __init__(self, patterns: Sequence[str], *, anchored: bool = False) -> None:
        """Compile the patterns; `anchored` ones match at the beginning of a text only."""
        make = re2.Set.MatchSet if anchored else re2.Set.SearchSet
        self._automata: list[re2.Set] = []
        for start in range(0, len(patterns), _PATTERNS_EACH):
            automaton = make(re2_options())
            for pattern in patterns[start : start + _PATTERNS_EACH]:
                automaton.Add(pattern)
            automaton.Compile()
            self._automata.append(automaton)

    def matching(self, utf8: bytes) -> Iterator[int]:
        """Yield the indexes of the patterns that match."""
        for number, automaton in enumerate(self._automata):
            for index in automaton.Match(utf8) or ():
                yield number * _PATTERNS_EACH + index


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
