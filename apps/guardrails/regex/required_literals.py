"""Literals that every match of a pattern contains: a quick test which of many patterns may match a text, and where.

A match has a literal of each clause of its pattern. `(?i)\\bapi[_-]?key *= *[0-9a-f]{32}` has the clauses
{\\0apikey, \\0api_key, \\0api-key} and {=}, with `\\0` for the beginning of a word. Literals and texts are folded
(`fold`): an automaton for letters in any case would need several times as many states. Matches are only looked for in
windows, as far around literals as a match reaches.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product, starmap
from typing import Final, NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation

from apps.guardrails.regex import pattern_tree
from apps.guardrails.regex.kept_analysis import keep_results

Clause = frozenset[str]

# Strings that a part of a pattern is worked out to, and characters of a class; of more, each part is by itself.
_MAX_EXACT, _MAX_CLASS = 16, 8
# Characters of a literal: longer ones are cut, and tell nearly as much. From so many on, more tell nothing more.
_MAX_LITERAL, _ENOUGH = 10, 4
# Clauses of a pattern that are kept, and characters that are a clause by themselves.
_MAX_CLAUSES, _RARE = 3, frozenset("@%")
# Literals of one byte and of two in a clause: of more, one is in nearly every text.
_MAX_SHORT = {1: 0, 2: 6}
# Bytes of a text in which literals are looked for at a time.
_PIECE = 16_384
# Marks in a literal where a word begins or ends.
BOUNDARY: Final = "\0"
# Beyond ASCII, two letters are small letters of ASCII to an expression that ignores case.
_ALIKE: Final = (("\u017f".encode(), b"s"), ("\u212a".encode(), b"k"))
# Bytes of a character, white space of ASCII as one blank, and a text without digits.
_MAX_CHARACTER, _DIGITS = 4, b"0123456789"
_BLANKS: Final = bytes.maketrans(b"\t\n\v\f\r", b"     ")
# 1 for a letter of a word, as RE2 has them, and 0 for all other bytes.
_LETTERS: Final = bytes(chr(code).isascii() and (chr(code).isalnum() or chr(code) == "_") for code in range(256))
# Whether a word begins and ends with a literal, and the numbers that it stands for then.
_Numbers = tuple[tuple[bool, bool, tuple[int, ...]], ...]
# Windows in a text: start and end, from left to right.
Windows = list[tuple[int, int]]


def fold(utf8: bytes) -> bytes:
    """Return a text as literals are written, in small letters of ASCII; all else stays as it is."""
    if not utf8.isascii():
        for letter, plain in _ALIKE:
            utf8 = utf8.replace(letter, plain)
    return utf8.lower()


@keep_results
@functools.lru_cache(maxsize=64)
def required_literals(pattern: str) -> list[Clause]:
    """Return the clauses of a pattern, the most telling first; none where a match needs no literal. Raises ValueError.

    Clauses that nearly every text meets do not count.
    """
    clauses = sorted(set(_read(pattern_tree.parse(pattern)).all_clauses()), key=_worth, reverse=True)
    return [clause for clause in clauses if clause <= _RARE or _is_telling(clause)][:_MAX_CLAUSES]


@keep_results
def needs_more_than_ascii(pattern: str) -> bool:
    """Tell whether every match of a pattern contains a character that is not in ASCII. Raises ValueError."""
    return pattern_tree.needs_more_than_ascii(pattern_tree.parse(pattern))


class LiteralAutomaton:
    """Literals that are found in one pass (Aho-Corasick), each with the numbers that it stands for.

    It has a state for each letter at most, and never grows.
    """

    def __init__(self, literals: Mapping[str, Sequence[int]]) -> None:
        """Take literals with their numbers; `BOUNDARY` at either end is the beginning or end of a word."""
        by_letters: defaultdict[bytes, defaultdict[tuple[bool, bool], list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for literal, numbers in literals.items():
            bounds = literal.startswith(BOUNDARY), literal.endswith(BOUNDARY)
            by_letters[literal.strip(BOUNDARY).encode()][bounds] += numbers
        # Most literals stand for the same as others: each value is kept once.
        shared: dict[_Numbers, _Numbers] = {}
        values = (tuple((*bounds, tuple(those)) for bounds, those in one.items()) for one in by_letters.values())
        self._numbers = [shared.setdefault(value, value) for value in values]
        self._sizes = list(map(len, by_letters))
        self._longest = max(self._sizes, default=0)
        # The small one of the implementations: some 20 bytes a letter, where the fastest has 256 states' worth of them.
        self._automaton = BytesAhoCorasick(by_letters, implementation=Implementation.ContiguousNFA)

    def places(self, utf8: bytes, start: int, end: int) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """Yield numbers, and where in `utf8[start:end]` a literal begins that stands for them, from left to right."""
        begins: defaultdict[int, list[int]] = defaultdict(list)
        # Piece by piece, as each piece's matches are in memory at once; a literal belongs to the piece that it ends in.
        for at in range(start, end, _PIECE) if self._numbers else ():
            first = max(at - self._longest + 1, start)
            found = self._automaton.find_matches_as_indexes(utf8[first : min(at + _PIECE, end)], overlapping=True)
            for index, begin, beyond in found:
                if beyond > at - first:
                    begins[index].append(first + begin)
        # At each place, counted from `start`, whether a letter precedes it, and one later whether one follows. Only of
        # this part: a text may be searched in very many.
        part = utf8[max(start - 1, 0) : end + 1].translate(_LETTERS) if begins else b""
        letters = b"".join((b"" if start else b"\0", part, b"\0"))
        for index, anywhere in begins.items():
            size = self._sizes[index]
            for begins_word, ends_word, numbers in self._numbers[index]:
                places = anywhere
                if begins_word:
                    places = [at for at in places if letters[at - start] != letters[at - start + 1]]
                if ends_word:
                    beyond = size - start
                    places = [at for at in places if letters[at + beyond] != letters[at + beyond + 1]]
                if places:
                    yield numbers, places


def has_place(places: Sequence[int], start: int, end: int) -> bool:
    """Tell whether one of some places, which are in order, is in a window."""
    at = bisect_left(places, start)
    return at < len(places) and places[at] < end


class MatchReach(NamedTuple):
    """How far a match reaches before and behind the beginning of a literal of one clause, in characters.

    No match contains `stop`, a line break or any white space; where it is empty, they may contain both. All have
    `least` bytes, and a digit where one is needed.
    """

    before: float
    after: float
    stop: bytes
    least: int
    needs_digit: bool

    def windows(self, places: Iterable[int], utf8: bytes) -> Windows:
        """Return the windows that hold all matches in a text, by where literals of the clause begin, in order."""
        windows: Windows = []
        last, is_ascii = 0, utf8.isascii()
        if is_ascii and not self.stop and self.before + self.after < math.inf:
            # The commonest case: nothing but places near one another to join.
            before, after = int(self.before), int(self.after)
            first, last = 0, -before - 1
            for at in places:
                if at - before > last:
                    windows.append((first, last))
                    first = max(at - before, 0)
                last = at + after
            return self._possible([*windows[1:], (first, min(last, len(utf8)))], utf8)
        stop, size = self.stop, len(utf8)
        text = utf8.translate(_BLANKS) if stop == b" " else utf8
        before = size if self.before == math.inf else int(self.before)
        after = size if self.after == math.inf else int(self.after)
        # A match without a bound that begins before the end of the last window is in that window.
        from_last = bool(stop) and self.before == math.inf
        closed = 0
        for at in places:
            # A window that ends at `stop`, or with the text, holds the windows of all places before its end.
            if at < closed:
                continue
            start, end = self._window(at, last if from_last else at - before, at + after, text)
            if not is_ascii and not utf8[start:end].isascii():
                first = last if from_last else at - _MAX_CHARACTER * before
                start, end = self._window(at, first, at + _MAX_CHARACTER * after, text)
            while windows and start <= windows[-1][1]:
                start, end = min(start, windows[-1][0]), max(end, windows.pop()[1])
            windows.append((start, end))
            last = end
            closed = end if end == size or text[end : end + 1] == stop else 0
        return self._possible(windows, utf8)

    def _possible(self, windows: Windows, utf8: bytes) -> Windows:
        if self.needs_digit:
            windows = [window for window in windows if _has_digit(utf8[slice(*window)])]
        least = self.least
        return [window for window in windows if window[1] - window[0] >= least]

    def _window(self, at: int, start: int, end: int, text: bytes) -> tuple[int, int]:
        """Return the part of these bounds around a place that is in the text and has no `stop`."""
        # Comparisons, not `min` and `max`: this runs some two hundred times for a page of text.
        if start < 0:
            start = 0
        if end > len(text):
            end = len(text)
        if self.stop:
            if start > at:
                start = at
            before = text.rfind(self.stop, start, at)
            if before >= 0:
                start = before + 1
            beyond = text.find(self.stop, at, end)
            if beyond >= 0:
                end = beyond
        return start, end


def _has_digit(utf8: bytes) -> bool:
    return len(utf8.translate(None, _DIGITS)) < len(utf8)


@keep_results
def reach_of(pattern: str) -> MatchReach | None:
    """Return how far the matches of a pattern reach around the literals of its most telling clause; None where a match
    needs no literal. Raises ValueError."""
    clauses = required_literals(pattern)
    if not clauses:
        return None
    clause = clauses[0]
    tree = pattern_tree.parse(pattern)
    parts = tree.parts if isinstance(tree, pattern_tree.Sequence) else (tree,)
    lengths = [pattern_tree.lengths_of(part)[1] for part in parts]
    placed = _placed_clauses(list(map(_read, parts)))[0]
    ranges = [(first, beyond) for one, first, beyond in placed if one == clause] or [(0, len(parts))]
    shortest = min(len(literal.strip(BOUNDARY)) for literal in clause)
    before, after = min(((sum(lengths[:beyond]) - shortest, sum(lengths[first:])) for first, beyond in ranges), key=sum)
    blanks = pattern_tree.blanks_of(tree)
    stop = b" " if not blanks else b"" if b"\n" in blanks else b"\n"
    return MatchReach(before, after, stop, pattern_tree.lengths_of(tree)[0], pattern_tree.needs_digit(tree))


def has_bounded_reach(pattern: str) -> bool:
    """Tell whether all matches of a pattern are in windows that are narrower than a text."""
    reach = reach_of(pattern)
    return reach is not None and (bool(reach.stop) or reach.before + reach.after < math.inf)


class _Part(NamedTuple):
    """Matches of a part of a pattern: exactly these strings, or strings with a literal of each clause."""

    exact: frozenset[str] | None
    clauses: tuple[Clause, ...] = ()

    def all_clauses(self) -> tuple[Clause, ...]:
        """Return the clauses, of exact strings too."""
        if self.exact is None:
            return self.clauses
        return () if any(not one.strip(BOUNDARY) for one in self.exact) else (_without_longer(self.exact),)


_EMPTY: Final = frozenset({""})
_NOTHING: Final = _Part(_EMPTY)
_ANYTHING: Final = _Part(None)


def _read(node: pattern_tree.Node) -> _Part:
    match node:
        case pattern_tree.Character():
            return _read_character(node)
        case pattern_tree.Boundary():
            return _Part(frozenset({BOUNDARY}))
        case pattern_tree.Sequence(parts):
            return _one_after_another(list(map(_read, parts)))
        case pattern_tree.Alternatives(parts):
            return _one_of(list(map(_read, parts)))
        case pattern_tree.Repeat(part, 0, most):
            return _one_of([_read(part), _NOTHING]) if most == 1 else _ANYTHING
        case pattern_tree.Repeat(part, least, most):
            once = _read(part)
            if least == most and least <= _MAX_EXACT and once.exact is not None:
                return _one_after_another([once] * least)
            return _Part(None, once.all_clauses())


def _read_character(character: pattern_tree.Character) -> _Part:
    if character.letters is None:
        return _ANYTHING
    letters = set(character.letters)
    if character.ignores_case:
        letters.update(*(_cases().get(letter.casefold(), ()) for letter in character.letters if not letter.isascii()))
    folded = frozenset(fold(letter.encode()).decode() for letter in letters)
    return _Part(folded) if len(folded) <= _MAX_CLASS else _ANYTHING


@functools.cache
def _cases() -> dict[str, str]:
    """Return the letters beyond ASCII that differ in nothing but their case, by their folded form."""
    found: dict[str, str] = {}
    for letter in map(chr, (*range(0x80, 0x3000), *range(0xA640, 0xAC00), *range(0xFB00, 0x10600))):
        folded = letter.casefold()
        if folded != letter:
            found[folded] = found.get(folded, folded if len(folded) == 1 else "") + letter
    return found


def _one_of(parts: Sequence[_Part]) -> _Part:
    """Return the matches of alternatives."""
    if all(part.exact is not None for part in parts):
        exact = Clause().union(*(part.exact or () for part in parts))
        return _Part(exact) if len(exact) <= _MAX_EXACT else _Part(None, _Part(exact).all_clauses())
    best = [max(part.all_clauses(), key=_worth, default=Clause()) for part in parts]
    return _Part(None, (_without_longer(Clause().union(*best)),)) if all(best) else _ANYTHING


def _one_after_another(parts: Sequence[_Part]) -> _Part:
    """Return the matches of parts that follow one another."""
    placed, exact = _placed_clauses(parts)
    return _Part(exact, tuple(clause for clause, _, _ in placed) if exact is None else ())


def _placed_clauses(parts: Sequence[_Part]) -> tuple[list[tuple[Clause, int, int]], frozenset[str] | None]:
    """Return the clauses of parts that follow one another, each with the parts that it is in; and the exact strings."""
    clauses: list[tuple[Clause, int, int]] = []
    before, since, is_exact = _EMPTY, 0, True
    for place, part in enumerate(parts):
        if part.exact is not None and len(before) * len(part.exact) <= _MAX_EXACT:
            before = frozenset(starmap(join_literals, product(before, part.exact)))
            continue
        is_exact = False
        clauses += [(clause, since, place) for clause in _Part(before).all_clauses()]
        clauses += [(clause, place, place + 1) for clause in part.clauses]
        before, since = (_EMPTY, place + 1) if part.exact is None else (part.exact, place)
    clauses += [(clause, since, len(parts)) for clause in _Part(before).all_clauses()]
    return clauses, before if is_exact else None


def join_literals(one: str, two: str) -> str:
    """Return two literals as one; a word that begins or ends between them is no part of it."""
    return one.rstrip(BOUNDARY) + two.lstrip(BOUNDARY) if one.strip(BOUNDARY) and two.strip(BOUNDARY) else one + two


def _without_longer(literals: Iterable[str]) -> Clause:
    """Return literals, cut, without those that contain another."""
    kept: set[str] = set()
    for literal in sorted({literal[:_MAX_LITERAL] for literal in literals}, key=len):
        size = len(literal)
        if kept.isdisjoint(literal[first:last] for first in range(size) for last in range(first + 1, size + 1)):
            kept.add(literal)
    return frozenset(kept)


def _is_telling(clause: Clause) -> bool:
    sizes = [len(literal.strip(BOUNDARY).encode()) for literal in clause]
    return all(sizes.count(size) <= most for size, most in _MAX_SHORT.items())


def _shortest(clause: Clause) -> int:
    return min(map(len, clause))


def _worth(clause: Clause) -> tuple[int, int, list[str]]:
    """Return how much a clause tells: long literals are rarer than short ones, few rarer than many."""
    return min(_shortest(clause), _ENOUGH), -len(clause), sorted(clause)
