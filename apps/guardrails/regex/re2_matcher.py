"""RE2 matcher for customers' expressions: groups in one pass, bounded matches, a time budget (no ReDoS).

Texts are bytes (UTF-8), and offsets are in bytes.

RE2 is linear in the text, and that alone is not enough. Finding *all* matches can take the square (`a(.*b)?` reads to
the end of the text after every `a`), so a match has at most `MAX_MATCH_BYTES`, and no search reads further than a
window. And a byte can cost as much as an expression is large (`[ab]*a[ab]{500}c`), so that expressions are weighed, and
what they take in all is bounded by `Effort`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import re2

from apps.guardrails.regex.re2_patterns import MemoryLimit, max_pattern_bytes

MAX_MATCH_BYTES = 2048
_WINDOW = 4 * MAX_MATCH_BYTES
# The positions of one expression, and of those that go in one pass: each costs at worst some 20 ns a byte.
MAX_PROGRAM_SIZE = 1000
# Memory of the largest expression and of the largest pass, in bytes.
_MAX_MEMORY = 4 << 20
# Memory of one expression, and of one pass, by their positions; an automaton that is full starts afresh. More made no
# text faster.
_EXPRESSION_LIMIT = MemoryLimit(32 << 10, 1 << 20, 1024)
_PASS_LIMIT = MemoryLimit(128 << 10, 512 << 10, 512, 140)
# Bytes of an expression and of a pass beside their program and states: the second program for searches backwards, and
# what Python keeps.
_BESIDE, _BESIDE_EACH = 2048, 24
# Seconds of computing that the expressions of an organization get for one request, and for each character of it more.
_EFFORT, _EFFORT_EACH = 0.25, 50e-9


class TimeBudget:
    """How long looking may take, in seconds of this thread's computing; ordinary expressions need a hundredth.

    It runs from the beginning; as a context, only while inside of it.
    """

    def __init__(self, seconds: float = _EFFORT) -> None:
        self._end = time.thread_time() + seconds
        self._left = seconds

    @classmethod
    def for_characters(cls, size: int) -> TimeBudget:
        """Return what texts of so many characters get."""
        return cls(_EFFORT + _EFFORT_EACH * size)

    def __enter__(self) -> None:
        self._end = time.thread_time() + self._left

    def __exit__(self, *_: object) -> None:
        self._left = self._end - time.thread_time()

    def is_spent(self) -> bool:
        """Tell whether it is time to stop."""
        return time.thread_time() > self._end


class Re2Match(NamedTuple):
    """`utf8[start:end]` matches the expression of that place; if not `searched`, the time ran out before."""

    expression: int
    start: int
    end: int
    searched: bool = True


def matcher_options(
    encoding: re2.Options.Encoding = re2.Options.Encoding.UTF8, memory: int = _MAX_MEMORY
) -> re2.Options:
    """Return how every expression is compiled; `memory` is what its program and its states may take, in bytes."""
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.max_mem = memory
    chosen.encoding = encoding
    return chosen


def compile_expression(pattern: str) -> re2._Regexp:
    """Return a customer's expression within the memory for one of its size. Raises re2.error."""
    largest = re2.compile(pattern, matcher_options())
    memory = _EXPRESSION_LIMIT.of(largest.programsize)
    return largest if memory >= _MAX_MEMORY else re2.compile(pattern, matcher_options(memory=memory))


def program_size(expression: re2._Regexp) -> int:
    """Return how many positions an expression has: what a byte can cost at worst.

    In Latin-1, where a class of characters is one position; in UTF-8 `\\pL` alone has a thousand, one at a time.
    """
    try:
        latin = re2.compile(expression.pattern.encode("latin-1"), matcher_options(re2.Options.Encoding.LATIN1))
    except (re2.error, UnicodeEncodeError):
        return int(expression.programsize)
    return int(min(latin.programsize, expression.programsize))


class PatternGroup:
    """Expressions looked for together: a few passes tell which of them match, and only those are searched for."""

    def __init__(self, expressions: Sequence[re2._Regexp]) -> None:
        """`max_bytes` is what the expressions and passes take at most."""
        self._expressions = expressions
        self._gates: list[tuple[re2.Set, list[int]]] = []
        self.max_bytes = sum(map(_max_bytes_of, expressions))
        members: list[int] = []
        weight = 0
        for index, expression in enumerate(expressions):
            weighs = program_size(expression)
            if members and weight + weighs > MAX_PROGRAM_SIZE:
                self._close(members)
                members, weight = [], 0
            members.append(index)
            weight += weighs
        if members:
            self._close(members)

    def find(self, utf8: bytes, most: int, budget: TimeBudget) -> Iterator[Re2Match]:
        """Yield the matches of every expression, none of them empty, each expression's from left to right.

        After `most` of one expression everything that is left counts as one more: looking stays bounded, and masking
        leaves nothing behind. The same when `budget` is spent.
        """
        for number, (gate, members) in enumerate(self._gates):
            if number and budget.is_spent():
                yield from (Re2Match(index, 0, len(utf8), searched=False) for index in members if utf8)
                continue
            for index, first in self._hits(gate, members, utf8, budget):
                yield from self._spans(index, first, utf8, most, budget)

    def _close(self, members: list[int]) -> None:
        """Compile a gate. Its members may be too many for one automaton: then each half gets its own."""
        positions = sum(self._expressions[index].programsize for index in members)
        memory = min(_PASS_LIMIT.of(positions), _MAX_MEMORY)
        gate = re2.Set.SearchSet(matcher_options(memory=memory))
        for index in members:
            gate.Add(self._expressions[index].pattern)
        try:
            gate.Compile()
        except re2.error:
            if len(members) == 1:
                raise
            half = len(members) // 2
            self._close(members[:half])
            self._close(members[half:])
            return
        self._gates.append((gate, members))
        # A set searches in one direction: all of its memory is for these states.
        self.max_bytes += _BESIDE + 2 * _BESIDE_EACH * positions + memory

    def _hits(self, gate: re2.Set, members: list[int], utf8: bytes, budget: TimeBudget) -> list[tuple[int, int]]:
        """Return the expressions that may match, each with where to begin looking."""
        first: dict[int, int] = {}
        for start in range(0, max(len(utf8) - MAX_MATCH_BYTES, 1), _WINDOW - MAX_MATCH_BYTES):
            if start and budget.is_spent():
                return [(index, first.get(index, start)) for index in members]
            # A character more in front, for what looks back at it.
            for hit in gate.Match(utf8[max(start - 4, 0) : start + _WINDOW]) or ():
                first.setdefault(members[hit], max(start - 4, 0))
        return sorted(first.items())

    def _spans(self, index: int, position: int, utf8: bytes, most: int, budget: TimeBudget) -> Iterator[Re2Match]:
        expression, size, searches = self._expressions[index], len(utf8), 0
        while position < size:
            if budget.is_spent():
                yield Re2Match(index, position, size, searched=False)
                return
            end = min(position + _WINDOW, size)
            # A match that begins before it ends within the window, or is too long.
            limit = size if end == size else end - MAX_MATCH_BYTES
            found = expression.search(utf8, position, end)
            if found is None or found.start() >= limit:
                position = limit
                continue
            start, stop = found.span()
            if searches == most:
                yield Re2Match(index, start, size)
                return
            searches += 1
            if stop > start:
                yield Re2Match(index, start, stop)
            position = max(stop, start + 1)


def _max_bytes_of(expression: re2._Regexp) -> int:
    size: int = expression.programsize
    return max_pattern_bytes(size, _EXPRESSION_LIMIT.of(size)) + _BESIDE + _BESIDE_EACH * size
