"""Weighted attack signals: patterns of a table that are found near one another and together weigh enough.

Knows how to search for all patterns of a table at once. Must never know which attack a table is about, nor where a text
comes from.

One automaton looks for all heads of patterns in the whole text. Only where one is found are its patterns tried, each on
at most `_REACH` bytes: time is linear in the length of any text, and a text with nothing in it costs one pass. Equal
surroundings are tried once; and where there are more heads than in any harmless text, the rest counts as found without
being tried.
"""

from __future__ import annotations

import functools
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from apps.guardrails.findings.scan_types import OPERATOR_ROLES, UNFINISHED, Span
from apps.guardrails.matching.mention_filter import MentionFilter
from apps.guardrails.matching.signal_compiler import SignalPattern, compile_table
from apps.guardrails.regex.re2_patterns import PatternSet, compile_re2, find_last_end
from apps.guardrails.text.decoding import find_decoded_texts
from apps.guardrails.text.scanned_text import ScannedText

# How far, in bytes, a pattern reaches to either side of its head's beginning.
_REACH = 320
_BEHIND = 160
# Signals at most this far apart, in bytes, count together.
_NEAR = 600
# Heads and signals that are looked at in one text: this many, and one more for so many bytes.
_LOOKED_AT, _BYTES_EACH = 1000, 128
# Heads of one automaton: they have no gaps, so it stays small.
_HEADS_EACH = 512
_ENOUGH = 1.0 - 1e-9  # weights are sums of floats
# How much less counts of what an operator tells a model: long instructions name the attacks that they warn of.
_OPERATOR_BONUS = -1.0
# How much more counts of what a user says in a few words: an order has no room for anything else there, and whoever
# works on a text about attacks brings that along.
_BRIEF_BONUS, _BRIEF = 0.4, 500
# What somebody took the trouble to hide is worth this much more.
_HIDDEN = 0.6
# Encodings that addresses, pages and JSON are full of hide nothing; nor do slips of the finger, names and lists.
_EVERYDAY = {
    "percent",
    "entities",
    "escapes",
    "misspelled",
    "emphasized",
    "separated",
    "joined",
    "listed",
    "last_word_first",
}


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


class _SignalFinder:
    """Patterns that are looked for together: one automaton for their heads, one that tells which head it is.

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
        self._heads = compile_re2("|".join(heads))
        self._which = PatternSet(heads, anchored=True, each=_HEADS_EACH)

    def signals(self, utf8: bytes, places: Iterable[tuple[int, int]]) -> Iterator[AttackSignal]:
        """Yield the signals whose heads begin in one of the `places` (start, end) of a text, from left to right."""
        if not self._patterns:
            return
        known: dict[tuple[int, bytes], list[AttackSignal]] = {}
        left = _LOOKED_AT + len(utf8) // _BYTES_EACH
        for start, end in places:
            while head := self._heads.search(utf8, start, end):
                at = head.start()
                if left <= 0:
                    yield AttackSignal(at, find_last_end(self._heads, utf8, head), UNFINISHED, 1.0, at)
                    return
                start, first = at + 1, max(0, at - _BEHIND)
                around = (at - first, utf8[first : at + _REACH])
                if around not in known:
                    known[around], left = list(self._match_at(*around)), left - 1
                left -= 1 + len(known[around])
                for signal in known[around]:
                    yield AttackSignal(
                        signal.start + first, signal.end + first, signal.kind, signal.weight, at, signal.pattern
                    )

    def _match_at(self, at: int, utf8: bytes) -> Iterator[AttackSignal]:
        ahead = utf8[at:]
        candidates = [index for head in self._which.matching(ahead) for index in self._groups[head].candidates(ahead)]
        for index in sorted(candidates):
            signal = match_pattern(self._patterns[index], utf8, at)
            if signal is not None:
                yield signal


class SignalTable:
    """Every pattern of a table."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        forms = list(compile_table(table))
        # The kinds that are orders; others only frame one, and say nothing by being hidden.
        self._orders = frozenset(table["orders"])
        # Those that are one by themselves where somebody says little else.
        self._brief_orders = frozenset(table.get("brief_orders", ()))
        self._leading = _SignalFinder((pattern, head) for supports, pattern, head in forms if not supports)
        self._supporting = _SignalFinder((pattern, head) for supports, pattern, head in forms if supports)

    def signals(self, utf8: bytes) -> list[AttackSignal]:
        """Return the signals in a normalized text, from left to right; those that only support, only near others."""
        signals = list(self._leading.signals(utf8, [(0, len(utf8))]))
        signals += self._supporting.signals(utf8, list(_around(signals, len(utf8))))
        return sorted(signals, key=lambda signal: signal.start)

    def find(self, utf8: bytes, *, seen: bytes = b"", bonus: float = 0.0, brief: bool = False) -> list[AttackSignal]:
        """Return what is found: signals near one another whose kinds together, with `bonus`, are worth 1 or more.

        Signals whose words stand in `seen` as well are left out. What is found is as long as the signals that make it
        up, and named by the worthiest of them; none overlap.
        """
        fresh = functools.cache(lambda words: words not in seen)
        signals = [signal for signal in self.signals(utf8) if not seen or fresh(utf8[signal.start : signal.end])]
        # What is only spoken of is judged last: most signals stand alone, and need no second look.
        suspects = {signal for group in self._worthy(signals, bonus, brief) for signal in group}
        mentions = MentionFilter(utf8)
        meant = [
            signal
            for signal in (_weigh_by_mention(signal, mentions) for signal in signals if signal in suspects)
            if signal is not None
        ]
        found: list[AttackSignal] = []
        for group in self._worthy(meant, bonus, brief):
            name = max(group, key=lambda signal: signal.weight).kind
            start, end = min(signal.start for signal in group), max(signal.end for signal in group)
            if found and start <= found[-1].end:
                found[-1] = AttackSignal(min(start, found[-1].start), max(end, found[-1].end), found[-1].kind, 1.0)
            else:
                found.append(AttackSignal(start, end, name, 1.0))
        return found

    def spans(self, text: ScannedText, *, bonus: float = 0.0, brief: bool = False) -> list[Span]:
        """Return what is found in a text as it stands and in what it says when decoded; `bonus`: see `find`."""
        spans = [
            Span(*text.normalized_byte_origin(signal.start, signal.end), signal.kind)
            for signal in self.find(text.normalized_utf8, bonus=bonus, brief=brief)
        ]
        for view in find_decoded_texts(text):
            hidden = 0.0 if view.encoding in _EVERYDAY else _HIDDEN
            found = self.find(view.text.normalized_utf8, seen=text.normalized_utf8, bonus=bonus + hidden, brief=brief)
            spans += [
                Span(
                    *view.origin_of(*view.text.normalized_byte_origin(one.start, one.end)),
                    f"{view.encoding}:{one.kind}",
                )
                for one in (found if view.origin is not None else found[:1])
            ]
        return spans

    def _worthy(self, signals: list[AttackSignal], bonus: float, brief: bool) -> Iterator[list[AttackSignal]]:
        """Yield, for each signal whose neighborhood weighs enough, the signals in it, one of each kind."""
        latest: dict[str, AttackSignal] = {}
        for signal in signals:
            former = latest.get(signal.kind)
            if former is None or former.weight <= signal.weight or signal.start - former.start > _NEAR:
                latest[signal.kind] = signal
            by_head = {
                other.head: other
                for other in sorted(latest.values(), key=lambda other: other.weight)
                if signal.start - other.start <= _NEAR
            }
            worth = sum(other.weight for other in by_head.values())
            # Less counts of everything; more only of orders, as nothing else is said by being hidden or out of place.
            if bonus < 0 or any(other.kind in self._orders for other in by_head.values()):
                worth += bonus
            if brief and any(other.kind in self._brief_orders for other in by_head.values()):
                worth += _BRIEF_BONUS
            if worth > _ENOUGH or signal.kind == UNFINISHED:
                yield list(by_head.values())


def load_signal_table(*paths: Path) -> SignalTable:
    """Return the table that files make together, compiled; raises where one is not well formed.

    Words of one name and language are those of the first file that has them.
    """
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in paths]
    words: dict[str, dict[str, str]] = {}
    for table in reversed(tables):
        for language, meanings in table["words"].items():
            words[language] = {**words.get(language, {}), **meanings}
    return SignalTable(
        {
            "orders": [kind for table in tables for kind in table["orders"]],
            "brief_orders": [kind for table in tables for kind in table.get("brief_orders", ())],
            "words": words,
            "shape": [shape for table in tables for shape in table["shape"]],
        }
    )


def find_by_speaker(table: SignalTable, text: ScannedText, role: str) -> list[Span]:
    """Return what is found in a text by how much counts of it, for who says it and how briefly."""
    bonus = _OPERATOR_BONUS if role in OPERATOR_ROLES else 0.0
    return table.spans(text, bonus=bonus, brief=role == "user" and len(text.raw) <= _BRIEF)


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


def _weigh_by_mention(signal: AttackSignal, mentions: MentionFilter) -> AttackSignal | None:
    """Return the signal with what it is worth where it stands; None if it is only spoken of."""
    if signal.pattern is None or signal.pattern.plain:
        return signal
    counts = mentions.weight_of(signal.start, signal.end, order=signal.pattern.imperative)
    return msgspec.structs.replace(signal, weight=signal.weight * counts) if counts else None


def _around(signals: list[AttackSignal], size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that are near a signal, none of them twice."""
    start = end = 0
    for signal in signals:
        if signal.head - _NEAR > end:
            if end > start:
                yield start, end
            start = signal.head - _NEAR
        end = min(size, max(end, signal.end + _NEAR))
    if end > start:
        yield start, end
