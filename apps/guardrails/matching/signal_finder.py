"""Search for the patterns of a table of attack signals, by their heads.

Knows patterns and where they match. Must never know what a signal is worth beside others, nor where a text comes from.

All heads of patterns are looked for at once in the whole text. Only where one is found are its patterns tried, each on
at most `_REACH` bytes: time is linear in the length of any text, and a text with nothing in it costs one pass. Equal
surroundings are tried once; and where there are more heads than in any harmless text, the rest counts as found without
being tried.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import msgspec

from apps.guardrails.findings.scan_types import UNFINISHED
from apps.guardrails.matching.head_search import HeadSearch
from apps.guardrails.matching.signal_compiler import SignalPattern
from apps.guardrails.regex.re2_patterns import PATTERNS_EACH, PatternSet

# How far, in bytes, a pattern reaches to either side of its head's beginning.
_REACH = 320
_BEHIND = 160
# Heads and signals that are looked at in one text: this many, and one more for so many bytes.
_LOOKED_AT, _BYTES_EACH = 1000, 128
# Heads of one automaton: they have no gaps, so it stays small.
_HEADS_EACH = 512


class AttackSignal(msgspec.Struct, frozen=True):
    """One signal in a normalized text: `utf8[start:end]`, what it is a signal of, and its worth from 0 to 1."""

    start: int
    end: int
    kind: str
    weight: float
    # Where its head stands: two signals with one head are one.
    head: int = 0
    pattern: SignalPattern | None = None


class _SameHead:
    """The patterns of one head, by their indexes, and the automaton that tells which of them may match."""

    def __init__(self) -> None:
        self._indexes: list[int] = []
        self._patterns: list[str] = []

    def add(self, index: int, pattern: SignalPattern) -> None:
        self._indexes.append(index)
        self._patterns.append(pattern.ahead.pattern)

    def candidates(self, ahead: bytes) -> Iterable[int]:
        """Return the patterns that may match what begins with their head."""
        return [self._indexes[place] for place in self._together.matching(ahead)]

    @functools.cached_property
    def _together(self) -> PatternSet:
        return PatternSet(self._patterns, anchored=True)


class SignalFinder:
    """Patterns that are looked for together: a search for their heads, an automaton that tells which head it is.

    Only patterns of that head are tried, and all are compiled when they first are.
    """

    def __init__(self, forms: Iterable[tuple[SignalPattern, str]]) -> None:
        self._patterns: list[SignalPattern] = []
        by_head: defaultdict[str, _SameHead] = defaultdict(_SameHead)
        for index, (pattern, head) in enumerate(forms):
            by_head[head].add(index, pattern)
            self._patterns.append(pattern)
        heads = sorted(by_head)
        self._groups = [by_head[head] for head in heads]
        self._heads = HeadSearch(heads)
        self._which = PatternSet(heads, anchored=True, each=_HEADS_EACH)
        self._stretches: dict[int, PatternSet] = {}

    def signals(self, utf8: bytes, places: Iterable[tuple[int, int]]) -> Iterator[AttackSignal]:
        """Yield the signals whose heads begin in one of the `places` (start, end) of a text, from left to right."""
        if not self._patterns:
            return
        known: dict[tuple[int, bytes], list[AttackSignal]] = {}
        left = _LOOKED_AT + len(utf8) // _BYTES_EACH
        for start, end in places:
            for at in self._heads.starts(utf8, start, end):
                if left <= 0:
                    yield AttackSignal(at, self._heads.last_end(utf8, at), UNFINISHED, 1.0, at)
                    return
                first = max(0, at - _BEHIND)
                around = (at - first, utf8[first : at + _REACH])
                if around not in known:
                    known[around], left = self._match_at(*around), left - 1
                left -= 1 + len(known[around])
                for signal in known[around]:
                    yield AttackSignal(
                        signal.start + first, signal.end + first, signal.kind, signal.weight, at, signal.pattern
                    )

    def _match_at(self, at: int, utf8: bytes) -> list[AttackSignal]:
        ahead = utf8[at:]
        found: dict[int, AttackSignal] = {}
        for head in self._which.matching(ahead):
            for index in self._groups[head].candidates(ahead):
                signal = match_pattern(self._patterns[index], utf8, at)
                if signal is not None:
                    found[index] = signal
        return list(found.values()) if len(found) < 2 else [found[index] for index in self._ordered(found, ahead)]

    def _ordered(self, indexes: Collection[int], ahead: bytes) -> Iterator[int]:
        """Yield patterns that match in the order of the table by 64, and in these by where the shortest match ends.

        It decides which of two signals counts that are of one kind and weight.
        """
        for number in sorted({index // PATTERNS_EACH for index in indexes}):
            start = number * PATTERNS_EACH
            members = [index for index in indexes if index // PATTERNS_EACH == number]
            if len(members) > 1:
                members = [start + place for place in self._stretch(number).matching(ahead) if start + place in indexes]
            yield from members

    def _stretch(self, number: int) -> PatternSet:
        """Return the automaton of the table's next 64 patterns."""
        if number not in self._stretches:
            start = number * PATTERNS_EACH
            patterns = [pattern.ahead.pattern for pattern in self._patterns[start : start + PATTERNS_EACH]]
            self._stretches[number] = PatternSet(patterns, anchored=True)
        return self._stretches[number]


def match_pattern(pattern: SignalPattern, utf8: bytes, head: int) -> AttackSignal | None:
    """Return the signal whose head word stands there, None where the words around it do not fit."""
    ahead = pattern.ahead.compiled.match(utf8, head, head + _REACH)
    if ahead is None:
        return None
    start = head
    if pattern.before is not None:
        behind = pattern.before.compiled.search(utf8[max(0, head - _BEHIND) : head])
        if behind is None:
            return None
        start = max(0, head - _BEHIND) + behind.start()
    return AttackSignal(start, ahead.end(), pattern.kind, pattern.weight, head, pattern)
