"""RE2 patterns of the system rules: linear time, over UTF-8, in bounded memory.

An RE2 pattern keeps the states that texts bring it into, up to a limit; when the limit is reached it starts afresh, and
where that happens too often it matches without states, ten times slower. Any text can be made to fill any pattern, so
the limits of all patterns together are what guardrails may take of a process. Most patterns are searched only in texts
with a literal that they need, and get little; those that every text is searched with get more.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import re2


class MemoryLimit(NamedTuple):
    """Bytes for the program and the states of one pattern: at least, at most, and for each position of its program.

    `least_each` is for the largest programs: less than 110 is too little to compile one.
    """

    least: int
    most: int
    each: int
    least_each: int = 110

    def of(self, positions: int) -> int:
        """Return the limit of a pattern with so many positions."""
        return max(min(self.most, max(self.least, self.each * positions)), self.least_each * positions)


# Limits for patterns that most texts are searched with, and for the others. Without states, these would be searched ten
# times slower in the few texts with their literals.
OFTEN = MemoryLimit(32 << 10, 512 << 10, 512, 220)
RARELY = MemoryLimit(32 << 10, 128 << 10, 256)
# A program may need more than that to be compiled at all.
_COMPILING_MEMORY = 16 << 20
_compiled: dict[str, re2._Regexp] = {}
_compiled_often: dict[str, re2._Regexp] = {}


def re2_options(memory: int) -> re2.Options:
    """Return the options of a pattern that may take so many bytes; errors are raised, not written to standard error."""
    chosen = re2.Options()
    chosen.max_mem = memory
    chosen.log_errors = False
    return chosen


def compile_re2(pattern: str, *, often: bool = False) -> re2._Regexp:
    """Return a pattern ready to search UTF-8; `often` if every text is searched with it. Raises re2.error.

    Equal patterns are compiled once.
    """
    if pattern in _compiled_often:
        return _compiled_often[pattern]
    known, limit = (_compiled_often, OFTEN) if often else (_compiled, RARELY)
    if pattern not in known:
        known[pattern] = re2.compile(pattern, _options_of(pattern, limit))
    return known[pattern]


def _options_of(pattern: str, limit: MemoryLimit) -> re2.Options:
    return re2_options(limit.of(re2.compile(pattern, re2_options(_COMPILING_MEMORY)).programsize))


def presence_test(pattern: str) -> Callable[[bytes], bool]:
    """Return a test, for every text in UTF-8, whether it has a match; some twenty times faster than `re`."""
    search = compile_re2(pattern, often=True).search
    return lambda utf8: search(utf8) is not None


class LazyPattern:
    """A pattern that is compiled when it is first needed: most patterns of a rule never match anything.

    Compiling takes some 0.2 ms. A malformed pattern raises only then, so a test compiles all.
    """

    __slots__ = ("_compiled", "_often", "pattern")

    def __init__(self, pattern: str, *, often: bool = False) -> None:
        """Keep a pattern as it is written; `often`: see `compile_re2`."""
        self.pattern = pattern
        self._often = often
        self._compiled: re2._Regexp | None = None

    @property
    def compiled(self) -> re2._Regexp:
        """The pattern ready to search UTF-8."""
        if self._compiled is None:
            self._compiled = compile_re2(self.pattern, often=self._often)
        return self._compiled


@functools.cache
def lazy_pattern(pattern: str, *, often: bool = False) -> LazyPattern:
    """Return a pattern of a rule; equal patterns of all rules are compiled once."""
    return LazyPattern(pattern, often=often)


class PatternFilter:
    """Tells which of many patterns may match a text, by the literal text that each of them needs.

    One automaton looks for the literals; its states are no more than their letters. Patterns without a literal are
    searched for one by one: a set of them would keep a state for each mix of them that texts are in the middle of.
    """

    def __init__(self, patterns: Sequence[str], rare: Container[int] = ()) -> None:
        """Take patterns, and the indexes of those that few texts are searched with. Raises re2.error."""
        self._patterns = patterns
        self._rare = rare
        self._literals = re2.Filter()
        for index, pattern in enumerate(patterns):
            self._literals.Add(pattern.encode(), _options_of(pattern, RARELY if index in rare else OFTEN))
        self._literals.Compile()
        # The filter has compiled them: that need not be done again to search for one.
        for index, pattern in enumerate(patterns):
            (_compiled if index in rare else _compiled_often).setdefault(pattern, self._literals.re(index))
        without = self._literals.Match(b"", potential=True) or ()
        self._without = frozenset(without)
        by_pattern: defaultdict[str, list[int]] = defaultdict(list)
        for index in without:
            by_pattern[patterns[index]].append(index)
        self._tests = [(presence_test(pattern), tuple(indexes)) for pattern, indexes in by_pattern.items()]

    def candidates(self, utf8: bytes) -> list[int]:
        """Return the indexes of the patterns that may match, in order."""
        may_match = set(self._literals.Match(utf8, potential=True) or ()) - self._without
        for is_present, indexes in self._tests:
            if is_present(utf8):
                may_match.update(indexes)
        return sorted(may_match)

    def matching(self, utf8: bytes, among: Container[int] | None = None) -> list[int]:
        """Return the indexes of the patterns that match, in order.

        With `among`, only these are searched for; of the others, those that may match are returned.
        """
        known: dict[str, bool] = {}

        def matches(index: int) -> bool:
            pattern = self._patterns[index]
            if pattern not in known:
                known[pattern] = compile_re2(pattern, often=index not in self._rare).search(utf8) is not None
            return known[pattern]

        return [
            index
            for index in self.candidates(utf8)
            if index in self._without or (among is not None and index not in among) or matches(index)
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
