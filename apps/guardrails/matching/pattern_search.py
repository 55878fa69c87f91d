"""Pattern search: regular expressions find candidates, a check validates each of them.

It turns candidates into spans, and bounds how many candidates of a text are checked.

Checks are Python, and a text can be made of nothing but candidates. So equal candidates are checked once; and where
there are more candidates than any harmless text has, the rest counts as found without a check, from the first of them
to the last: then more is masked than must be, and nothing is let through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from apps.guardrails.findings.scan_types import MAX_SPANS, UNFINISHED, Span
from apps.guardrails.regex.re2_patterns import OFTEN, RARELY, PatternFilter, find_last_end, lazy_pattern
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


class CandidatePattern(NamedTuple):
    """One kind of data that is searched for.

    `pattern` finds candidates (its first group, if it has one, is the candidate) and `check` judges them.
    Only texts that match `gate` (by default the pattern) are searched. Candidates of one kind may overlap
    with `overlapping`: a refused one is then searched again from its second word; only for patterns whose
    matches are short. `follow` matches, right behind a finding, what makes the next of a list ("…, …and …");
    its first group is the candidate. `wide_context`: the check looks further than
    `CONTEXT_BYTES`. `often`: most texts with settings or programs are searched with it, so that it gets more memory.
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


class PatternSearch:
    """Searches for many kinds at once: one pass tells which may be there, then each of these is searched for."""

    def __init__(self, kinds: Sequence[CandidatePattern]) -> None:
        self._kinds = kinds
        self._patterns = [lazy_pattern(kind.pattern, OFTEN if kind.often else RARELY) for kind in kinds]
        self._follows = [lazy_pattern(kind.follow) if kind.follow else None for kind in kinds]
        often = frozenset(index for index, kind in enumerate(kinds) if kind.often)
        self._filter = PatternFilter([kind.gate or kind.pattern for kind in kinds], often)
        self._gated = frozenset(index for index, kind in enumerate(kinds) if kind.gate)

    def find(self, plain: AsciiFoldedText) -> list[Span]:
        """Return the spans by place: of two that overlap, the first in the order of kinds.

        Unchecked ones (`UNFINISHED`) may overlap others.
        """
        checker = _CandidateChecker(self._kinds, plain.utf8)
        checked: list[tuple[int, int, int]] = []
        coarse: list[tuple[int, int, int]] = []
        for rank in self._filter.matching(plain.utf8, self._gated):
            for start, end, sure in self._find_kind(rank, checker):
                (checked if sure else coarse).append((start, rank, end))
        spans = [(*one, self._kinds[one[1]].name) for one in _drop_overlapping(checked)]
        spans += [(*one, UNFINISHED) for one in coarse]
        return [
            Span(*plain.origin(start, end), name, self._kinds[rank].label) for start, rank, end, name in sorted(spans)
        ]

    def _find_kind(self, rank: int, checker: _CandidateChecker) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, end, whether it was checked) of the matches of one kind."""
        kind, pattern, utf8 = self._kinds[rank], self._patterns[rank].compiled, checker.utf8
        group = min(pattern.groups, 1)
        at = chain = end = found = 0
        while match := pattern.search(utf8, at):
            start = match.start()
            if checker.left <= 0 or found >= MAX_SPANS:
                yield start, find_last_end(pattern, utf8, match), False
                return
            chain = chain + 1 if start < end else 0
            if chain > _CHAIN:
                at = _end_of_stretch(utf8, start, match.end())
                yield start, at, False
                end = at + _NEXT * (utf8[at : at + 1] != b"\n")
                continue
            candidate, end = checker(rank, *match.span(group)), match.end()
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


class _CandidateChecker:
    """Runs the checks for one text, each only once for equal surroundings. `left`: how many more checks may run."""

    def __init__(self, kinds: Sequence[CandidatePattern], utf8: bytes) -> None:
        self.utf8 = utf8
        self.left = _MAX_CHECKED + len(utf8) // _BYTES_EACH
        self._kinds = kinds
        self._checked: dict[tuple[int, int, int, bytes], tuple[int, int] | None] = {}

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
