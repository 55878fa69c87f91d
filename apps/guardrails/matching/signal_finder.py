"""Search for the patterns of a table of attack signals, by their heads.

All heads are looked for at once, by the literal text with which each begins (Aho-Corasick), and with them the literals
that patterns need. One automaton holds the literal beginnings of all heads, in some 100 bytes a character, and never
grows: a regular expression for all of them would keep a state for each mix of heads that texts are in the middle of.
Only where a head may begin are its patterns tried, if their literals are near, each on at most `_REACH` bytes, so time
is linear in the length of any text. Patterns are matched without an automaton that keeps states (RE2's bit state
matcher, which it uses for a short anchored text with a group): memory stays what the compiled patterns take.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

import msgspec

from apps.guardrails.findings.scan_types import UNFINISHED
from apps.guardrails.matching.signal_compiler import SignalPattern
from apps.guardrails.regex.kept_analysis import keep_results
from apps.guardrails.regex.pattern_tree import Alternatives, Boundary, Character, Node, Repeat, Sequence, parse
from apps.guardrails.regex.required_literals import (
    BOUNDARY,
    Clause,
    LiteralAutomaton,
    has_place,
    join_literals,
    required_literals,
)

# Characters of a beginning from which on it is long enough, in ASCII and beyond, where fewer tell as much; how many
# beginnings an expression may have before they are cut, and letters of a class that each begin one.
_ENOUGH, _ENOUGH_BEYOND_ASCII, _MAX_BEGINNINGS, _MAX_LETTERS = 8, 5, 3000, 8
# A literal, and whether what follows in the expression follows it.
_Beginning = tuple[str, bool]


class HeadSearch:
    """Finds where one of many heads may begin. An index stands for a head wherever results name one."""

    def __init__(self, heads: Collection[str], clauses: Iterable[Clause] = ()) -> None:
        """Take the expressions of heads, and literals to look for besides, a clause of them for each index.

        Raises ValueError for a head that does not begin with literal text.
        """
        by_literal: defaultdict[str, list[int]] = defaultdict(list)
        self._clauses_from = len(heads)
        for index, literals in enumerate(chain(map(literal_beginnings, heads), clauses)):
            for literal in literals:
                by_literal[literal].append(index)
        self._automaton = LiteralAutomaton(by_literal)

    def candidates(
        self, utf8: bytes, start: int, end: int
    ) -> tuple[list[tuple[int, tuple[int, ...]]], defaultdict[int, list[int]]]:
        """Return the places in `utf8[start:end]` where heads may begin, each with the heads, from left to right.

        And the places where literals of each clause begin, in order.
        """
        found: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
        besides: defaultdict[int, list[int]] = defaultdict(list)
        for indexes, places in self._automaton.places(utf8, start, end):
            heads = indexes[: bisect_left(indexes, self._clauses_from)]
            for at in places if heads else ():
                found[at] += heads
            for index in indexes[len(heads) :]:
                besides[index - self._clauses_from] += places
        for places in besides.values():
            places.sort()
        return sorted(found.items()), besides


@keep_results
def literal_beginnings(expression: str) -> frozenset[str]:
    """Return literals of which one begins every match of an expression. Raises ValueError if there are none.

    A literal that follows `\\0` must begin a word, one before it must end one.
    """
    found = {literal for literal, _ in _read(parse(expression))}
    if not all(literal.strip(BOUNDARY) for literal in found):
        raise ValueError(f"A head must begin with literal text: {expression[:80]}")
    return frozenset(found)


def _read(node: Node) -> list[_Beginning]:
    """Return the beginnings of what a part of an expression matches."""
    match node:
        case Boundary():
            return [(BOUNDARY, True)]
        case Character(_, letters):
            is_small = letters is not None and len(letters) <= _MAX_LETTERS
            return [(letter, True) for letter in letters or ()] if is_small else [("", False)]
        case Alternatives(parts):
            return [beginning for part in parts for beginning in _read(part)]
        case Repeat(part, least, most):
            # Beginnings after a repetition are not worked out.
            once = [(literal, is_open and most == 1) for literal, is_open in _read(part)]
            return once if least else [*once, ("", True)]
        case Sequence(parts):
            return _read_one_after_another(parts)


def _read_one_after_another(parts: Iterable[Node]) -> list[_Beginning]:
    found: list[_Beginning] = [("", True)]
    for part in parts:
        if not any(is_open for _, is_open in found):
            break
        options = _read(part)
        longer = [_joined(one, two, is_open=is_open) for one, was_open in found if was_open for two, is_open in options]
        longer += [beginning for beginning in found if not beginning[1]]
        if len(longer) > _MAX_BEGINNINGS and all(literal.strip(BOUNDARY) for literal, _ in found):
            return [(literal, False) for literal, _ in found]
        found = list(dict.fromkeys(longer))
    return found


def _joined(one: str, two: str, *, is_open: bool) -> _Beginning:
    whole = join_literals(one, two)
    enough = _ENOUGH if whole.isascii() else _ENOUGH_BEYOND_ASCII
    return whole[:enough], is_open and len(whole) < enough


# How far, in bytes, a pattern reaches to either side of its head's beginning.
_REACH = 320
_BEHIND = 160
# Patterns that are tried in one text, and signals that are found in it: this many, and one more for so many bytes. No
# harmless text comes near it; what follows in a text that does counts as found.
_MAX_TRIED, _BYTES_EACH_TRIED = 5000, 3
_MAX_SIGNALS, _BYTES_EACH_SIGNAL = 1000, 128
# Lists of patterns by heads that are kept.
_MAX_KEPT = 1024
# A pattern, and the number of a clause that it needs, or `_NONE`.
_NeedyPattern = tuple[SignalPattern, int]
_NONE = -1


class AttackSignal(msgspec.Struct, frozen=True):
    """One signal in a normalized text: `utf8[start:end]`, what it is a signal of, and its worth from 0 to 1."""

    start: int
    end: int
    kind: str
    weight: float
    # Where its head stands: two signals with one head are one.
    head: int = 0
    pattern: SignalPattern | None = None


class SignalFinder:
    """The patterns of one table, looked for together. Each is compiled when it is first tried."""

    def __init__(self, forms: Iterable[tuple[SignalPattern, str]]) -> None:
        """Take patterns, each with the expression of its head."""
        by_head: defaultdict[str, list[_NeedyPattern]] = defaultdict(list)
        numbers: dict[Clause, int] = {}
        for pattern, head in forms:
            clause = max(required_literals(pattern.ahead.pattern), key=_least_length, default=None)
            number = _NONE if clause is None else numbers.setdefault(clause, len(numbers))
            by_head[head].append((pattern, number))
        self._patterns = list(by_head.values())
        self._heads = HeadSearch(by_head, numbers)
        self._patterns_of = functools.lru_cache(_MAX_KEPT)(self._in_order)

    def _in_order(self, heads: tuple[int, ...]) -> list[_NeedyPattern]:
        return [pattern for head in sorted(set(heads)) for pattern in self._patterns[head]]

    def signals(self, utf8: bytes, places: Iterable[tuple[int, int]]) -> Iterator[AttackSignal]:
        """Yield the signals whose heads begin in one of the `places` (start, end) of a text, from left to right."""
        if not self._patterns:
            return
        known: dict[tuple[int, bytes], list[AttackSignal]] = {}
        left = _MAX_TRIED + len(utf8) // _BYTES_EACH_TRIED
        signals_left = _MAX_SIGNALS + len(utf8) // _BYTES_EACH_SIGNAL
        for start, end in places:
            candidates, besides = self._heads.candidates(utf8, start, end)
            is_whole = end - start == len(utf8)
            for at, heads in candidates:
                likely = [
                    pattern
                    for pattern, clause in self._patterns_of(heads)
                    # In a part of a text, literals may be beyond it.
                    if clause == _NONE
                    or not is_whole
                    or (clause in besides and has_place(besides[clause], at, at + _REACH))
                ]
                if not likely:
                    continue
                if left <= 0 or signals_left <= 0:
                    yield AttackSignal(at, candidates[-1][0] + 1, UNFINISHED, 1.0, at)
                    return
                first = max(0, at - _BEHIND)
                around = (at - first, utf8[first : at + _REACH])
                if around not in known:
                    tried = (match_pattern(pattern, around[1], around[0]) for pattern in likely)
                    known[around] = [signal for signal in tried if signal is not None]
                    left -= len(likely)
                left -= 1
                signals_left -= len(known[around])
                for signal in known[around]:
                    yield AttackSignal(
                        signal.start + first, signal.end + first, signal.kind, signal.weight, at, signal.pattern
                    )


def _least_length(clause: Clause) -> int:
    return min(len(literal.strip(BOUNDARY)) for literal in clause)


def match_pattern(pattern: SignalPattern, utf8: bytes, head: int) -> AttackSignal | None:
    """Return the signal whose head stands there, None where the words around it do not fit."""
    ahead = pattern.ahead.spans_at(utf8, head, min(head + _REACH, len(utf8)))
    if not ahead:
        return None
    start = head
    if pattern.before is not None:
        first = max(0, head - _BEHIND)
        behind = pattern.before.spans_at(utf8[first:head], 0, head - first)
        if not behind:
            return None
        start = first + behind[1][0]
    return AttackSignal(start, ahead[0][1], pattern.kind, pattern.weight, head, pattern)
