"""Things looked for in a text: candidates by pattern, judged one by one, several kinds at once.

Knows how a hit becomes a span, and how much judging a text is worth. Must never know what is looked for.

Judging is Python, and a text can be made of nothing but candidates. So what looks the same is judged once; and where
there are more candidates than any text has that means no harm, the rest counts as found without being judged, from the
first of them to the last: then more is masked than must be, and nothing is let through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import re2

from apps.guardrails.findings.scan_types import MAX_SPANS, UNFINISHED, Span
from apps.guardrails.regex.re2_patterns import compile_re2, find_last_end, re2_options
from apps.guardrails.text.ascii_folding import AsciiFoldedText

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGITS = frozenset(b"0123456789")
# How many bytes a check may look at before and behind a candidate, if it does not say otherwise.
CONTEXT_BYTES = 260
# Candidates that are judged in one text: this many, and one more for so many bytes.
_JUDGED, _BYTES_EACH = 1500, 64
# Refused candidates each of which begins within the one before it; how many bytes of the line then count as found at a
# time, and how near behind these the next one is of the same chain.
_CHAIN, _STRETCH, _NEXT = 100, 1024, 32
_MOST_REMEMBERED = 4000


class CandidateMatch(NamedTuple):
    """A candidate: `utf8[start:end]`."""

    utf8: bytes
    start: int
    end: int

    @property
    def text(self) -> str:
        """What was matched."""
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


# Says what of a candidate is a finding: the candidate, a part of it, or nothing.
Check = Callable[[CandidateMatch], CandidateMatch | None]


class CandidatePattern(NamedTuple):
    """One thing that is looked for.

    `pattern` finds candidates (its first group, if it has one, is the candidate) and `check` judges them.
    Only texts that match `gate` (by default the pattern) are searched. Candidates of one kind may overlap
    with `overlapping`: a refused one is then searched again from its second word; only for patterns whose
    matches are short. `follow` matches, right behind a finding, what makes the next of a list ("…, …and …");
    its first group is the candidate. `far`: the check looks further than `REACH`.
    """

    name: str
    label: str
    pattern: str
    check: Check
    gate: str = ""
    overlapping: bool = False
    follow: str = ""
    wide_context: bool = False


class PatternSearch:
    """Many things looked for at once: one pass for all, then one for each that is there."""

    def __init__(self, soughts: Sequence[CandidatePattern]) -> None:
        self._soughts = soughts
        self._patterns = [compile_re2(sought.pattern) for sought in soughts]
        self._follows = [compile_re2(sought.follow) if sought.follow else None for sought in soughts]
        self._gate = re2.Set.SearchSet(re2_options())
        for sought in soughts:
            self._gate.Add(sought.gate or sought.pattern)
        self._gate.Compile()

    def find(self, plain: AsciiFoldedText) -> list[Span]:
        """Return what is there, by place: of two that overlap, what comes first among the soughts.

        What was not judged (`UNFINISHED`) may overlap others.
        """
        judge = _CandidateChecker(self._soughts, plain.utf8)
        judged: list[tuple[int, int, int]] = []
        coarse: list[tuple[int, int, int]] = []
        for rank in self._gate.Match(plain.utf8) or ():
            for start, end, sure in self._hits(rank, judge):
                (judged if sure else coarse).append((start, rank, end))
        spans = [(*one, self._soughts[one[1]].name) for one in _drop_overlapping(judged)]
        spans += [(*one, UNFINISHED) for one in coarse]
        return [
            Span(*plain.origin(start, end), name, self._soughts[rank].label) for start, rank, end, name in sorted(spans)
        ]

    def _hits(self, rank: int, judge: _CandidateChecker) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, end, whether it was judged) of what is found of one kind."""
        sought, pattern, utf8 = self._soughts[rank], self._patterns[rank], judge.utf8
        group = min(pattern.groups, 1)
        at = chain = end = found = 0
        while match := pattern.search(utf8, at):
            start = match.start()
            if judge.left <= 0 or found >= MAX_SPANS:
                yield start, find_last_end(pattern, utf8, match), False
                return
            chain = chain + 1 if start < end else 0
            if chain > _CHAIN:
                at = _end_of_stretch(utf8, start, match.end())
                yield start, at, False
                end = at + _NEXT * (utf8[at : at + 1] != b"\n")
                continue
            hit, end = judge(rank, *match.span(group)), match.end()
            if hit is not None:
                at = hit.end
                yield hit.start, at, True
                for following in self._followers(rank, hit, judge):
                    at, found = following.end, found + 1
                    yield following.start, at, True
                found, chain = found + 1, 0
            elif sought.overlapping:
                at = _find_second_word(utf8, start)
            else:
                at = max(end, at + 1)

    def _followers(self, rank: int, hit: CandidateMatch | None, judge: _CandidateChecker) -> Iterator[CandidateMatch]:
        follow = self._follows[rank]
        while follow and hit and judge.left > 0 and (match := follow.match(hit.utf8, hit.end)):
            hit = judge(rank, *match.span(1))
            if hit:
                yield hit


class _CandidateChecker:
    """The checks for one text: what stands the same in the same place is judged once. `left`: how many more may be."""

    def __init__(self, soughts: Sequence[CandidatePattern], utf8: bytes) -> None:
        self.utf8 = utf8
        self.left = _JUDGED + len(utf8) // _BYTES_EACH
        self._soughts = soughts
        self._known: dict[tuple[int, int, int, bytes], tuple[int, int] | None] = {}

    def __call__(self, rank: int, start: int, end: int) -> CandidateMatch | None:
        self.left -= 1
        sought = self._soughts[rank]
        if sought.wide_context:
            return sought.check(CandidateMatch(self.utf8, start, end))
        first = max(0, start - CONTEXT_BYTES)
        around = (rank, start - first, end - start, self.utf8[first : end + CONTEXT_BYTES])
        if around in self._known:
            known = self._known[around]
            return known and CandidateMatch(self.utf8, start + known[0], start + known[1])
        hit = sought.check(CandidateMatch(self.utf8, start, end))
        if len(self._known) < _MOST_REMEMBERED:
            self._known[around] = hit and (hit.start - start, hit.end - start)
        return hit


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
