"""RE2 patterns of the system rules: linear time, over UTF-8, in bounded memory.

An RE2 pattern keeps the states that texts bring it into, up to a limit; when the limit is reached it starts afresh, and
where that happens too often it matches without states, slower. The limits here are small because there are many
patterns; `tests/guardrails/test_memory.py` and `script/bench soak` measure what all of them take.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence

import re2

# Bytes for the program and the states of one pattern: at least, at most, and for each position of its program, on
# which the size of a state depends. With less, large patterns start afresh all the time.
_LEAST_MEMORY, _MAX_MEMORY, _MEMORY_EACH = 32 << 10, 1536 << 10, 1024
# A program may need more than that to be compiled at all.
_COMPILING_MEMORY = 16 << 20
_compiled: dict[str, re2._Regexp] = {}


def re2_options(memory: int) -> re2.Options:
    """Return the options of a pattern that may take so many bytes; errors are raised, not written to standard error."""
    chosen = re2.Options()
    chosen.max_mem = memory
    chosen.log_errors = False
    return chosen


def compile_re2(pattern: str) -> re2._Regexp:
    """Return a pattern ready to search UTF-8. Raises re2.error. Equal patterns are compiled once."""
    if pattern not in _compiled:
        _compiled[pattern] = re2.compile(pattern, _options_of(pattern))
    return _compiled[pattern]


def _options_of(pattern: str) -> re2.Options:
    size = re2.compile(pattern, re2_options(_COMPILING_MEMORY)).programsize
    # To compile, RE2 wants a hundred bytes for each position.
    most = max(_MAX_MEMORY, 110 * size)
    return re2_options(min(most, max(_LEAST_MEMORY, _MEMORY_EACH * size)))


def presence_test(pattern: str) -> Callable[[bytes], bool]:
    """Return a test whether a text in UTF-8 has a match, some twenty times faster than `re`."""
    search = compile_re2(pattern).search
    return lambda utf8: search(utf8) is not None


class LazyPattern:
    """A pattern that is compiled when it is first needed: most patterns of a rule never match anything.

    Compiling takes some 0.2 ms. A malformed pattern raises only then, so a test compiles all.
    """

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        """Keep a pattern as it is written."""
        self.pattern = pattern
        self._compiled: re2._Regexp | None = None

    @property
    def compiled(self) -> re2._Regexp:
        """The pattern ready to search UTF-8."""
        if self._compiled is None:
            self._compiled = compile_re2(self.pattern)
        return self._compiled


@functools.cache
def lazy_pattern(pattern: str) -> LazyPattern:
    """Return a pattern of a rule; equal patterns of all rules are compiled once."""
    return LazyPattern(pattern)


class PatternFilter:
    """Tells which of many patterns may match a text, by the literal text that each of them needs.

    One automaton looks for the literals; its states are no more than their letters. Patterns without a literal are
    searched for one by one: a set of them would keep a state for each mix of them that texts are in the middle of.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        """Take patterns. Raises re2.error."""
        self._literals = re2.Filter()
        for pattern in patterns:
            self._literals.Add(pattern.encode(), _options_of(pattern))
        self._literals.Compile()
        # The filter has compiled them: that need not be done again to search for one.
        for index, pattern in enumerate(patterns):
            _compiled.setdefault(pattern, self._literals.re(index))
        without = self._literals.Match(b"", potential=True) or ()
        self._without = frozenset(without)
        by_pattern: defaultdict[str, list[int]] = defaultdict(list)
        for index in without:
            by_pattern[patterns[index]].append(index)
        self._patterns = patterns
        self._tests = [(presence_test(pattern), tuple(indexes)) for pattern, indexes in by_pattern.items()]

    def candidates(self, utf8: bytes) -> list[int]:
        """Return the indexes of the patterns that may match, in order."""
        may_match = set(self._literals.Match(utf8, potential=True) or ()) - self._without
        for is_present, indexes in self._tests:
            if is_present(utf8):
                may_match.update(indexes)
        return sorted(may_match)

    def matching(self, utf8: bytes) -> list[int]:
        """Return the indexes of the patterns that match, in order."""
        return [
            index
            for index in self.candidates(utf8)
            if index in self._without or compile_re2(self._patterns[index]).search(utf8) is not None
        ]


def find_last_end(pattern: re2._Regexp, utf8: bytes, match: re2._Match[bytes]) -> int:
    """Return where the last match ends, from `match` on. It is found by halves: a text may have very many."""
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
