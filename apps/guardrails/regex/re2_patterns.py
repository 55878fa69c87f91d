"""RE2 patterns of the system rules: linear time, over UTF-8, in bounded memory.

An RE2 pattern keeps the states that texts bring it into, up to a limit; when the limit is reached it starts afresh, and
where that happens too often it matches without states, ten times slower. Any text can be made to fill any pattern, so
the limits of all patterns together bound the memory of a process:

- Patterns that every text is searched with go through `PatternFilter`, which tells where they may match by literals. A
  set of those without literals needs fewer states than the patterns one by one, as it only tells whether they match.
- `compile_re2` keeps a pattern for the life of the process: for those of the code, and the few that most texts with
  settings or programs are searched with.
- All others, by far the most, are lazy: a `PatternCache` keeps those that are used most, with states and without.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import AnyStr, Final, NamedTuple

import re2

from apps.guardrails.regex.required_literals import (
    Clause,
    LiteralAutomaton,
    Windows,
    fold,
    has_place,
    needs_more_than_ascii,
    reach_of,
    required_literals,
)


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


# Limits of the one pattern that takes the most time of texts with settings or programs, of those that most of these
# texts are searched with, of other patterns that search texts, of all that only judge what these find, of sets of
# patterns that every text is searched with, and of patterns that only match short texts at their beginning: RE2 does
# that without states where the pattern has a group. The largest that search are ten times slower with fewer states.
BUSIEST: Final = MemoryLimit(2 << 20, 2 << 20, 1024)
OFTEN: Final = MemoryLimit(32 << 10, 576 << 10, 1024, 150)
SEARCHING: Final = MemoryLimit(32 << 10, 128 << 10, 256, 400)
RARELY: Final = MemoryLimit(32 << 10, 128 << 10, 256)
PRESENCE: Final = MemoryLimit(48 << 10, 192 << 10, 384, 140)
STATELESS: Final = MemoryLimit(8 << 10, 8 << 10, 110)
# Limits of such sets, and of patterns among them, that letters and signs of ordinary words bring into many states: with
# half as much they start afresh in each text.
STATEFUL: Final = MemoryLimit(128 << 10, 384 << 10, 768, 140)
# Limits of a set of literals, by their characters.
LITERALS: Final = MemoryLimit(128 << 10, 1 << 20, 256, 140)
# Positions that are compiled into one set.
_SET_POSITIONS: Final = 600
# A program may need more than that to be compiled at all.
_COMPILING_MEMORY: Final = 16 << 20
# Bytes of a compiled pattern beside its states, and for each of its positions.
_PATTERN_BYTES, _POSITION_BYTES = 1024, 24
# Bytes that the lazy patterns of a process take at most, and of them those without states: ordinary texts need hundreds
# of these, each of a few KB, and one large pattern with states would displace a hundred.
MAX_LAZY_BYTES, _MAX_STATELESS_BYTES = 14_000_000, 2_200_000
_AT_START: Final = re2._Anchor.ANCHOR_START
_ANYWHERE: Final = re2._Anchor.UNANCHORED
_KEPT: Final = (BUSIEST, OFTEN)
_compiled: dict[tuple[str, MemoryLimit], re2._Regexp] = {}
_lazy: dict[tuple[str, MemoryLimit], LazyPattern] = {}
# The limits of sets, which are kept for the life of the process like the rules that have them.
_set_limits: list[int] = []


def re2_options(memory: int) -> re2.Options:
    """Return the options of a pattern that may take so many bytes; errors are raised, not written to standard error."""
    chosen = re2.Options()
    chosen.max_mem = memory
    chosen.log_errors = False
    return chosen


def compile_re2(pattern: str, limit: MemoryLimit = RARELY) -> re2._Regexp:
    """Return a pattern ready to search UTF-8, kept for the life of the process. Raises re2.error.

    Equal patterns are compiled once.
    """
    known = _compiled.get((pattern, limit))
    if known is None:
        known = _compiled[pattern, limit] = _compile(pattern, limit)
    return known


def _compile(pattern: str, limit: MemoryLimit) -> re2._Regexp:
    # Not `re2.compile`, which keeps the last patterns that it compiled.
    return re2._Regexp(pattern, re2_options(limit.of(_positions_of(pattern))))


def _max_bytes_of(pattern: str, limit: MemoryLimit) -> int:
    positions = _positions_of(pattern)
    return max_pattern_bytes(positions, 0 if limit is STATELESS else limit.of(positions))


def max_pattern_bytes(positions: int, memory: int) -> int:
    """Return the bytes that a pattern with so many positions takes at most, where its states may take `memory`."""
    # RE2 divides a limit by three: for searches forwards, backwards, and for the longest match, which no pattern needs
    # beside the others.
    return _PATTERN_BYTES + _POSITION_BYTES * positions + memory * 2 // 3


@functools.cache
def _positions_of(pattern: str) -> int:
    """Return the length of a pattern's program. Raises re2.error."""
    return int(re2._Regexp(pattern, re2_options(_COMPILING_MEMORY)).programsize)


def search_spans(pattern: re2._Regexp, utf8: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Return the (start, end) of the first match within bounds, and of its groups; nothing where there is none.

    Without the library's iterator, which takes as long as most of these searches.
    """
    spans: list[tuple[int, int]] = pattern._regexp.Match(_ANYWHERE, utf8, start, end)
    return spans if spans[0][0] >= 0 else []


def has_match(pattern: re2._Regexp, utf8: bytes, windows: Windows) -> bool:
    """Tell whether a pattern matches in one of some windows."""
    return any(search_spans(pattern, utf8, start, end) for start, end in windows)


def presence_test(pattern: str) -> Callable[[bytes], bool]:
    """Return a test, for every text in UTF-8, whether it has a match; some twenty times faster than `re`."""
    search = compile_re2(pattern).search
    return lambda utf8: search(utf8) is not None


class LazyPattern:
    """A pattern that is compiled when it is needed: most patterns of a rule never match anything.

    Compiling takes some 0.2 ms. A malformed pattern raises only then, so a test compiles all.
    """

    __slots__ = ("limit", "pattern")

    def __init__(self, pattern: str, limit: MemoryLimit = RARELY) -> None:
        """Keep a pattern as it is written, and the limit of its memory."""
        self.pattern = pattern
        self.limit = limit

    @property
    def compiled(self) -> re2._Regexp:
        """The pattern ready to search UTF-8. Raises re2.error."""
        if self.limit in _KEPT:
            return compile_re2(self.pattern, self.limit)
        return (_stateless_cache if self.limit is STATELESS else _cache).compiled(self)

    def search(self, text: AnyStr, *bounds: int) -> re2._Match[AnyStr] | None:
        """Return the first match, between `bounds` if there are any. Raises re2.error."""
        return self.compiled.search(text, *bounds)

    def spans_at(self, utf8: bytes, start: int, end: int) -> list[tuple[int, int]]:
        """Return the (start, end) of a match that begins at `start`, and of its groups; nothing where there is none.

        Without the library's iterator, which takes longer than most of these matches. Raises re2.error.
        """
        spans: list[tuple[int, int]] = self.compiled._regexp.Match(_AT_START, utf8, start, end)
        return spans if spans[0][0] >= 0 else []

    @property
    def max_bytes(self) -> int:
        """Bytes that it takes at most when it is compiled and has the states that its limit allows."""
        return _max_bytes_of(self.pattern, self.limit)


def lazy_pattern(pattern: str, limit: MemoryLimit = RARELY) -> LazyPattern:
    """Return a pattern of a rule; equal patterns of all rules are compiled once."""
    return _lazy.setdefault((pattern, limit), LazyPattern(pattern, limit))


@dataclass(slots=True)
class _Kept:
    """A compiled pattern with its bytes, how often it was used, and what it is worth to keep."""

    pattern: re2._Regexp
    size: int
    uses: int = 0
    score: int = 0


class PatternCache:
    """Compiled lazy patterns, within a number of bytes: those that are used least go, and come again.

    Texts need the same few patterns over and over, and many others once: the last used are not those needed next. So
    the cache counts uses, and adds to them the score of the pattern that went last, which lets former favorites go in
    time ("least frequently used with dynamic aging"). On the texts of six repositories two fifths fewer patterns are
    compiled again than if the last used were kept.

    Safe on several threads: two may compile the same pattern, and the bytes are counted again when patterns go.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._last_gone = 0
        self._kept: dict[LazyPattern, _Kept] = {}

    def compiled(self, lazy: LazyPattern) -> re2._Regexp:
        """Return a pattern ready to search UTF-8. Raises re2.error."""
        known = self._kept.get(lazy)
        if known is None:
            known = self._kept[lazy] = _Kept(_compile(lazy.pattern, lazy.limit), lazy.max_bytes)
            self._bytes += known.size
            if self._bytes > self._max_bytes:
                self._drop_least_used(but=known)
        known.uses += 1
        known.score = self._last_gone + known.uses
        return known.pattern

    def _drop_least_used(self, but: _Kept) -> None:
        kept = sorted(self._kept.items(), key=lambda item: item[1].score)
        self._bytes = sum(one.size for _, one in kept)
        for lazy, one in kept:
            if self._bytes <= self._max_bytes:
                break
            if one is not but:
                self._kept.pop(lazy, None)
                self._bytes -= one.size
                self._last_gone = one.score


_stateless_cache: Final = PatternCache(_MAX_STATELESS_BYTES)
_cache: Final = PatternCache(MAX_LAZY_BYTES - _MAX_STATELESS_BYTES)


def known_patterns() -> list[str]:
    """Return the patterns of all rules that this process has loaded."""
    return sorted({pattern for pattern, _ in (*_compiled, *_lazy)})


def max_automata_bytes() -> int:
    """Return the bytes that the automata of all loaded rules take at most, whatever texts they are searched in."""
    permanent = {*_compiled, *(known for known in _lazy if known[1] in _KEPT)}
    return sum(_max_bytes_of(*known) for known in permanent) + sum(_set_limits) + MAX_LAZY_BYTES


class _PresenceSet:
    """Tells which of some patterns match a text, in one pass."""

    def __init__(self, patterns: Sequence[tuple[str, Sequence[int]]], limit: int) -> None:
        """Take patterns, each with what it stands for, and the memory of all of them."""
        _set_limits.append(limit)
        self._set = re2.Set.SearchSet(re2_options(limit))
        self._indexes = [indexes for _, indexes in patterns]
        for pattern, _ in patterns:
            self._set.Add(pattern)
        self._set.Compile()

    def matching(self, utf8: bytes) -> Iterator[int]:
        """Yield what the patterns that match stand for."""
        for place in self._set.Match(utf8) or ():
            yield from self._indexes[place]


def _presence_sets(patterns: Iterable[tuple[str, Sequence[int]]], limit: MemoryLimit) -> Iterator[_PresenceSet]:
    """Yield sets of as many patterns as one automaton holds without too many states."""
    members: list[tuple[str, Sequence[int]]] = []
    size = 0
    for pattern, indexes in patterns:
        positions = _positions_of(pattern)
        if members and size + positions > _SET_POSITIONS:
            yield _PresenceSet(members, limit.of(size))
            members, size = [], 0
        members.append((pattern, indexes))
        size += positions
    if members:
        yield _PresenceSet(members, limit.of(size))


class _LiteralSearch:
    """Tells which of some patterns may match a text, and where, by the literals that each of them needs."""

    def __init__(self, needed: Mapping[int, Sequence[Clause]]) -> None:
        """Take the clauses of each pattern, by what stands for it. Every pattern has at least one."""
        numbers: dict[Clause, int] = {}
        # By clause: the patterns that need it most, and the numbers of their other clauses.
        self._needing: list[list[tuple[int, frozenset[int]]]] = []
        for index, clauses in needed.items():
            for clause in clauses:
                if clause not in numbers:
                    numbers[clause] = len(numbers)
                    self._needing.append([])
            first, *others = (numbers[clause] for clause in clauses)
            self._needing[first].append((index, frozenset(others)))
        by_literal: defaultdict[str, list[int]] = defaultdict(list)
        for clause, number in numbers.items():
            for literal in clause:
                by_literal[literal].append(number)
        self._automaton = LiteralAutomaton(by_literal)

    def places(self, folded: bytes) -> dict[int, list[list[int]]]:
        """Return what the patterns that may match stand for, and where the literals of each of their clauses begin."""
        met: defaultdict[int, list[int]] = defaultdict(list)
        for clauses, places in self._automaton.places(folded, 0, len(folded)):
            for clause in clauses:
                met[clause] += places
        for places in met.values():
            places.sort()
        return {
            index: [places, *map(met.__getitem__, others)]
            for clause, places in met.items()
            for index, others in self._needing[clause]
            if others <= met.keys()
        }


class PatternFilter:
    """Tells which of many patterns may match a text, and where, by the literal text that each of them needs.

    One automaton looks for the literals. Patterns without a literal are searched for in small sets: a set of all would
    keep a state for each mix of them that texts are in the middle of.
    """

    def __init__(self, patterns: Sequence[str], limit: MemoryLimit = PRESENCE) -> None:
        """Take patterns, and the limit of each set of those without literals. Raises re2.error."""
        self._patterns = list(map(lazy_pattern, patterns))
        needed = {index: required_literals(pattern) for index, pattern in enumerate(patterns)}
        reaches = {index: reach_of(pattern) for index, pattern in enumerate(patterns)}
        self._reach = {index: reach for index, reach in reaches.items() if reach is not None}
        self._literals = _LiteralSearch({index: clauses for index, clauses in needed.items() if clauses})
        by_pattern: defaultdict[str, list[int]] = defaultdict(list)
        for index in sorted(needed.keys() - self._reach.keys()):
            by_pattern[patterns[index]].append(index)
        beyond_ascii = {one: by_pattern.pop(one) for one in list(by_pattern) if needs_more_than_ascii(one)}
        self._sets = list(_presence_sets(by_pattern.items(), limit))
        self._sets_beyond_ascii = list(_presence_sets(beyond_ascii.items(), limit))

    def windows(self, utf8: bytes) -> dict[int, Windows]:
        """Return the indexes of the patterns that may match, in order, with the windows that hold all their matches."""
        whole, folded = [(0, len(utf8))], fold(utf8)
        sets = self._sets if utf8.isascii() else [*self._sets, *self._sets_beyond_ascii]
        found = {index: whole for patterns in sets for index in patterns.matching(utf8)}
        for index, (first, *others) in self._literals.places(folded).items():
            # Where folding makes letters shorter, places are others.
            windows = whole
            if len(folded) == len(utf8):
                windows = self._reach[index].windows(first, utf8)
                for places in others:
                    windows = [window for window in windows if has_place(places, *window)]
            if windows:
                found[index] = windows
        return dict(sorted(found.items()))

    def matching(self, utf8: bytes) -> list[int]:
        """Return the indexes of the patterns that match, in order."""
        known: dict[LazyPattern, bool] = {}
        for index, windows in (found := self.windows(utf8)).items():
            pattern = self._patterns[index]
            if index in self._reach and pattern not in known:
                known[pattern] = has_match(pattern.compiled, utf8, windows)
        return [index for index in found if known.get(self._patterns[index], True)]


def find_last_end(pattern: re2._Regexp, utf8: bytes, start: int, end: int) -> int:
    """Return where the last match ends, from `utf8[start:end]` on. It is found by halves: a text may have very many."""
    first, beyond = start + 1, len(utf8)
    while first < beyond:
        middle = (first + beyond) // 2
        later = pattern.search(utf8, middle)
        if later is None:
            beyond = middle
        else:
            first, end = later.start() + 1, max(end, later.end())
    return end
