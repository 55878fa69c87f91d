"""Search for the patterns of a table of attack signals, by their heads.

All heads are looked for at once. Only where one may begin are its patterns tried, each on at most `_REACH` bytes, so
time is linear in the length of any text. Patterns are matched without an automaton that keeps states (RE2's bit state
matcher, which it uses for a short anchored text with a group): memory stays what the compiled patterns take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from apps.guardrails.findings.scan_types import UNFINISHED
from apps.guardrails.matching.head_search import HeadSearch
from apps.guardrails.matching.signal_compiler import SignalPattern

# How far, in bytes, a pattern reaches to either side of its head's beginning.
_REACH = 320
_BEHIND = 160
# Patterns that are tried in one text, and signals that are found in it: this many, and one more for so many bytes. No
# harmless text comes near it; what follows in a text that does counts as found.
_MAX_TRIED, _BYTES_EACH_TRIED = 5000, 3
_MAX_SIGNALS, _BYTES_EACH_SIGNAL = 1000, 128


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
        by_head: defaultdict[str, list[SignalPattern]] = defaultdict(list)
        for pattern, head in forms:
            by_head[head].append(pattern)
        self._patterns = list(by_head.values())
        self._heads = HeadSearch(by_head)

    def signals(self, utf8: bytes, places: Iterable[tuple[int, int]]) -> Iterator[AttackSignal]:
        """Yield the signals whose heads begin in one of the `places` (start, end) of a text, from left to right."""
        if not self._patterns:
            return
        known: dict[tuple[int, bytes], list[AttackSignal]] = {}
        left = _MAX_TRIED + len(utf8) // _BYTES_EACH_TRIED
        signals_left = _MAX_SIGNALS + len(utf8) // _BYTES_EACH_SIGNAL
        for start, end in places:
            candidates = self._heads.candidates(utf8, start, end)
            for at, heads in candidates:
                if left <= 0 or signals_left <= 0:
                    yield AttackSignal(at, candidates[-1][0] + 1, UNFINISHED, 1.0, at)
                    return
                first = max(0, at - _BEHIND)
                around = (at - first, utf8[first : at + _REACH])
                if around not in known:
                    patterns = [pattern for head in sorted(heads) for pattern in self._patterns[head]]
                    tried = (match_pattern(pattern, around[1], around[0]) for pattern in patterns)
                    known[around] = [signal for signal in tried if signal is not None]
                    left -= len(patterns)
                left -= 1
                signals_left -= len(known[around])
                for signal in known[around]:
                    yield AttackSignal(
                        signal.start + first, signal.end + first, signal.kind, signal.weight, at, signal.pattern
                    )


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
