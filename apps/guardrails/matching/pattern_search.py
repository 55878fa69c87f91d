"""Pattern search: regular expressions find candidates, a check validates each of them.

It turns candidates into spans, and bounds how many candidates of a text are checked.

Checks are Python, and a text can be made of nothing but candidates. So equal candidates are checked once; and where
there are more candidates than any harmless text has, the rest counts as found without a check, from the first of them
to the last: then more is masked than must be, and nothing is let through.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from apps.guardrails.findings.scan_types import MAX_SPANS, UNFINISHED, Span
from apps.guardrails.regex.re2_patterns import (
    BUSIEST,
    OFTEN,
    SEARCHING,
    LazyPattern,
    PatternFilter,
    find_last_end,
    has_match,
    lazy_pattern,
    search_spans,
)
from apps.guardrails.regex.required_literals import Windows, has_bounded_reach
from apps.guardrails.text.ascii_folding import AsciiFoldedText

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGITS = frozenset(b"0123456789")
# How many bytes a check may look at before and behind a candidate, if it does not say otherwise.
CONTEXT_BYTES = 260
# Candidates that are checked in one text: this many, and one more for so many bytes.
_MAX_CHECKED, _BYTES_EACH = 1500, 64
# Refused candidates each of which begins within the one before it; how many bytes of the line then count as found at a
# time, and how near behind these the next one is of the same chain.
_CHAIN, _STRETCH, _NEXT = 100, 1024, 32
_MAX_REMEMBERED = 4000
# Bytes that checks add to a candidate.
_MAX_VALUE = 400


class CandidateMatch(NamedTuple):
    """A candidate: `utf8[start:end]`."""

    utf8: bytes
    start: int
    end: int

    @property
    def text(self) -> str:
        """The matched text."""
        return self.utf8[self.start : self.end].decode("utf-8", "replace")

    def before(self, length: int) -> bytes:
        """Return up to `length` bytes in front of it."""
        return self.utf8[max(0, self.start - length) : self.start]

    def after(self, length: int) -> bytes:
        """Return up to `length` bytes behind it."""
        return self.utf8[self.end : self.end + length]

    def stands_alone(self) -> bool:
        """Tell whether it is no part of a longer word, number, version or identifier."""
        before, after = self.before(2), self.after(2)
        if (before and before[-1] in _WORD) or (after and after[0] in _WORD):
            return False
        if len(before) == 2 and before[1:] in (b".", b"-", b"/") and before[0] in _DIGITS:
            return False
        return not (len(after) == 2 and after[:1] in (b".", b"-") and after[1] in _DIGITS)

    def truncated(self, length: int) -> CandidateMatch:
        """Return only its first `length` bytes."""
        return CandidateMatch(self.utf8, self.start, self.start + length)


# Validates a candidate. Returns what of it is a finding: the candidate, a part of it, or None.
Check = Callable[[CandidateMatch], CandidateMatch | None]


FindValues = Callable[[bytes], list[tuple[int, int]]]


class CandidatePattern(NamedTuple):
    """One kind of data that is searched for.

    `pattern` finds candidates (its first group, if it has one, is the candidate) and `check` judges them.
    Only texts that match `gate` (by default the pattern) are searched. Candidates of one kind may overlap
    with `overlapping`: a refused one is then searched again from its second word; only for patterns whose
    matches are short. `follow` matches, right behind a finding, what makes the next of a list ("…, …and …");
    its first group is the candidate. `wide_context`: the check looks further than
    `CONTEXT_BYTES`. `often`: most texts with settings or programs are searched with it, so that it gets more memory;
    the one that takes the most time of all is the `busiest`.
    """

    name: str
    label: str
    pattern: str
    check: Check
    gate: str = ""
    overlapping: bool = False
    follow: str = ""
    wide_context: bool = False
    often: bool = False
    busiest: bool = False
    # Returns the ends and beginnings of parts of a text that hold the values that the check accepts;
    # the rest of the text is not searched.
    find_values: FindValues | None = None


class PatternSearch:
    """Searches for many kinds at once: one pass tells which may be there, then each of these is searched for."""

    def __init__(self, kinds: Sequence[CandidatePattern]) -> None:
        self._kinds = kinds
        self._patterns = [_pattern_of(kind, kind.pattern) for kind in kinds]
        self._follows = [lazy_pattern(kind.follow) if kind.follow else None for kind in kinds]
        # A pattern that is searched for only near its literals needs no gate.
        self._gates = {
            index: _pattern_of(kind, kind.gate)
            for index, kind in enumerate(kinds)
            if kind.gate and not has_bounded_reach(kind.pattern)
        }
        searched = [self._gates.get(index, pattern) for index, pattern in enumerate(self._patterns)]
        self._filter = PatternFilter([pattern.pattern for pattern in searched])

    def find(self, plain: AsciiFoldedText) -> list[Span]:
        """Return the spans by place: of two that overlap, the first in the order of kinds.

        Unchecked ones (`UNFINISHED`) may overlap others.
        """
        checker = _CandidateChecker(self._kinds, plain.utf8)
        checked: list[tuple[int, int, int]] = []
        coarse: list[tuple[int, int, int]] = []
        for rank, near in self._filter.windows(plain.utf8).items():
            windows = self._narrowed(rank, near, checker)
            for start, end, sure in self._find_kind(rank, windows, checker) if windows else ():
                (checked if sure else coarse).append((start, rank, end))
        spans = [(*one, self._kinds[one[1]].name) for one in _drop_overlapping(checked)]
        spans += [(*one, UNFINISHED) for one in coarse]
        return [
            Span(*plain.origin(start, end), name, self._kinds[rank].label) for start, rank, end, name in sorted(spans)
        ]

    def _narrowed(self, rank: int, windows: Windows, checker: _CandidateChecker) -> Windows:
        """Return the windows in which a kind may be found; of a kind with a gate, the whole text if that matches."""
        utf8, find_values = checker.utf8, self._kinds[rank].find_values
        if rank in self._gates:
            gate = self._gates[rank].compiled
            return [(0, len(utf8))] if has_match(gate, utf8, windows) else []
        if find_values is None:
            return windows
        values = checker.values(find_values)
        return [
            (start, end)
            for start, end in windows
            if (at := bisect_left(values, (start, 0))) < len(values) and values[at][1] < end + _MAX_VALUE
        ]

    def _find_kind(self, rank: int, windows: Windows, checker: _CandidateChecker) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, end, whether it was checked) of the matches of one kind in parts of the text."""
        kind, pattern, utf8 = self._kinds[rank], self._patterns[rank].compiled, checker.utf8
        at = chain = end = found = 0
        for first, last in windows:
            at = max(at, first)
            while at <= last and (match := search_spans(pattern, utf8, at, last)):
                start, match_end = match[0]
                if checker.left <= 0 or found >= MAX_SPANS:
                    yield start, find_last_end(pattern, utf8, start, match_end), False
                    return
                chain = chain + 1 if start < end else 0
                if chain > _CHAIN:
                    at = _end_of_stretch(utf8, start, match_end)
                    yield start, at, False
                    end = at + _NEXT * (utf8[at : at + 1] != b"\n")
                    continue
                # The candidate is the first group, if there is one.
                candidate, end = checker(rank, *match[len(match) > 1]), match_end
                if candidate is not None:
                    at = candidate.end
                    yield candidate.start, at, True
                    for following in self._followers(rank, candidate, checker):
                        at, found = following.end, found + 1
                        yield following.start, at, True
                    found, chain = found + 1, 0
                elif kind.overlapping:
                    at = _find_second_word(utf8, start)
                else:
                    at = max(end, at + 1)

    def _followers(
        self, rank: int, candidate: CandidateMatch | None, checker: _CandidateChecker
    ) -> Iterator[CandidateMatch]:
        follows = self._follows[rank]
        follow = None if follows is None else follows.compiled
        while follow and candidate and checker.left > 0 and (match := follow.match(candidate.utf8, candidate.end)):
            candidate = checker(rank, *match.span(1))
            if candidate:
                yield candidate


def _pattern_of(kind: CandidatePattern, pattern: str) -> LazyPattern:
    return lazy_pattern(pattern, BUSIEST if kind.busiest else OFTEN if kind.often else SEARCHING)


class _CandidateChecker:
    """Runs the checks for one text, each only once for equal surroundings. `left`: how many more checks may run."""

    def __init__(self, kinds: Sequence[CandidatePattern], utf8: bytes) -> None:
        self.utf8 = utf8
        self.left = _MAX_CHECKED + len(utf8) // _BYTES_EACH
        self._kinds = kinds
        self._checked: dict[tuple[int, int, int, bytes], tuple[int, int] | None] = {}
        self._values: dict[FindValues, list[tuple[int, int]]] = {}

    def values(self, find_values: FindValues) -> list[tuple[int, int]]:
        """Return where a function finds values; it is asked once."""
        if find_values not in self._values:
            self._values[find_values] = find_values(self.utf8)
        return self._values[find_values]

    def __call__(self, rank: int, start: int, end: int) -> CandidateMatch | None:
        self.left -= 1
        kind = self._kinds[rank]
        if kind.wide_context:
            return kind.check(CandidateMatch(self.utf8, start, end))
        first = max(0, start - CONTEXT_BYTES)
        around = (rank, start - first, end - start, self.utf8[first : end + CONTEXT_BYTES])
        if around in self._checked:
            cached = self._checked[around]
            return cached and CandidateMatch(self.utf8, start + cached[0], start + cached[1])
        candidate = kind.check(CandidateMatch(self.utf8, start, end))
        if len(self._checked) < _MAX_REMEMBERED:
            self._checked[around] = candidate and (candidate.start - start, candidate.end - start)
        return candidate


def _end_of_stretch(utf8: bytes, start: int, end: int) -> int:
    line_end = utf8.find(b"\n", end, start + _STRETCH)
    return line_end if line_end >= 0 else max(end, min(start + _STRETCH, len(utf8)))


def _find_second_word(utf8: bytes, start: int) -> int:
    """Return where the second run of letters or digits begins; at least one byte further."""
    at, end = start, len(utf8)
    while at < end and utf8[at] not in _WORD:
        at += 1
    while at < end and utf8[at] in _WORD:
        at += 1
    return max(at, start + 1)


def _drop_overlapping(found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (start, rank, end) by place; of two that overlap, the one of lower rank, or the longer."""
    kept: list[tuple[int, int, int]] = []
    for item in sorted(found):
        if not kept or kept[-1][2] <= item[0]:
            kept.append(item)
            continue
        _, rank, end = kept[-1]
        if (item[1], -item[2]) < (rank, -end):
            kept[-1] = item
    return kept
