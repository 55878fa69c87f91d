"""Literals that every match of a pattern contains: a quick test which of many patterns may match a text.

A match has a literal of each clause of its pattern. `(?i)api[_-]?key *= *[0-9a-f]{32}` has the clauses
{apikey, api_key, api-key} and {=}. Literals and texts are folded (`fold`): an automaton for letters in any case would
need several times as many states.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final, NamedTuple

from apps.guardrails.regex import pattern_tree

Clause = frozenset[str]

# Strings that a part of a pattern is worked out to, and characters of a class; of more, each part is by itself.
_MAX_EXACT, _MAX_CLASS = 16, 8
# Characters of a literal: longer ones are cut, and tell nearly as much. From so many on, more tell nothing more.
_MAX_LITERAL, _ENOUGH = 10, 4
# Clauses of a pattern that are kept, and characters that are a clause by themselves.
_MAX_CLAUSES, _RARE = 3, frozenset("@%")
# Literals of a clause by the length of its shortest: of more short ones, one is in nearly every text.
_MAX_SHORT = {1: 0, 2: 6, 3: 16}
# Beyond ASCII, two letters are small letters of ASCII to an expression that ignores case.
_ALIKE: Final = (("\u017f".encode(), b"s"), ("\u212a".encode(), b"k"))


def fold(utf8: bytes) -> bytes:
    """Return a text as literals are written, in small letters of ASCII; all else stays as it is."""
    if not utf8.isascii():
        for letter, plain in _ALIKE:
            utf8 = utf8.replace(letter, plain)
    return utf8.lower()


def required_literals(pattern: str) -> list[Clause]:
    """Return the clauses of a pattern, the most telling first; none where a match needs no literal. Raises ValueError.

    Clauses that nearly every text meets do not count.
    """
    clauses = sorted(set(_read(pattern_tree.parse(pattern)).all_clauses()), key=_worth, reverse=True)
    return [
        clause for clause in clauses if clause <= _RARE or len(clause) <= _MAX_SHORT.get(_shortest(clause), len(clause))
    ][:_MAX_CLAUSES]


class _Part(NamedTuple):
    """Matches of a part of a pattern: exactly these strings, or strings with a literal of each clause."""

    exact: frozenset[str] | None
    clauses: tuple[Clause, ...] = ()

    def all_clauses(self) -> tuple[Clause, ...]:
        """Return the clauses, of exact strings too."""
        if self.exact is None:
            return self.clauses
        return () if "" in self.exact else (_without_longer(self.exact),)


_EMPTY: Final = frozenset({""})
_NOTHING: Final = _Part(_EMPTY)
_ANYTHING: Final = _Part(None)


def _read(node: pattern_tree.Node) -> _Part:
    match node:
        case pattern_tree.Character():
            return _read_character(node)
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
    clauses: list[Clause] = []
    before, is_exact = _EMPTY, True
    for part in parts:
        if part.exact is not None and len(before) * len(part.exact) <= _MAX_EXACT:
            before = frozenset(one + two for one, two in product(before, part.exact))
            continue
        is_exact = False
        clauses += (*_Part(before).all_clauses(), *part.clauses)
        before = _EMPTY if part.exact is None else part.exact
    return _Part(before) if is_exact else _Part(None, (*clauses, *_Part(before).all_clauses()))


def _without_longer(literals: Iterable[str]) -> Clause:
    """Return literals, cut, without those that contain another."""
    kept: set[str] = set()
    for literal in sorted({literal[:_MAX_LITERAL] for literal in literals}, key=len):
        size = len(literal)
        if kept.isdisjoint(literal[first:last] for first in range(size) for last in range(first + 1, size + 1)):
            kept.add(literal)
    return frozenset(kept)


def _shortest(clause: Clause) -> int:
    return min(map(len, clause))


def _worth(clause: Clause) -> tuple[int, int, list[str]]:
    """Return how much a clause tells: long literals are rarer than short ones, few rarer than many."""
    return min(_shortest(clause), _ENOUGH), -len(clause), sorted(clause)
