"""Search for the heads of many patterns at once, by the literal text with which each head begins (Aho-Corasick).

One automaton holds the literal beginnings of all heads, in some 100 bytes a character, and never grows: a regular
expression for all of them would keep a state for each mix of heads that texts are in the middle of. A hit only says
which patterns may match there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import ahocorasick

# Characters of a beginning from which on it is long enough, in ASCII and beyond, where fewer tell as much; and how many
# beginnings an expression may have before they are cut.
_ENOUGH, _ENOUGH_BEYOND_ASCII, _MAX_BEGINNINGS = 8, 5, 3000
_NO_LITERAL = frozenset("\\^$.|?*+()[]{}")
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_")
# Stands at the beginning of a literal that must begin a word.
_BOUNDARY = "\0"
# A literal, and whether what follows in the expression follows it.
_Beginning = tuple[str, bool]
# The length of a literal in bytes, the heads that begin with it at a word's beginning, and those that do anywhere.
_Heads = tuple[int, tuple[int, ...], tuple[int, ...]]


class HeadSearch:
    """Finds where one of many heads may begin. An index stands for a head wherever results name one."""

    def __init__(self, heads: Iterable[str]) -> None:
        """Take the expressions of heads. Raises ValueError for one that does not begin with literal text."""
        by_literal: defaultdict[str, list[int]] = defaultdict(list)
        for index, head in enumerate(heads):
            for literal in literal_beginnings(head):
                by_literal[literal].append(index)
        self._automaton = ahocorasick.Automaton()
        # Most literals share their heads with others: each value is kept once.
        values: dict[_Heads, _Heads] = {}
        for literal, indexes in by_literal.items():
            letters = literal.removeprefix(_BOUNDARY)
            known = self._automaton.get(_as_bytes(letters), (0, (), ()))
            bounded, anywhere = (indexes, []) if literal != letters else ([], indexes)
            value = (len(letters.encode()), (*known[1], *bounded), (*known[2], *anywhere))
            self._automaton.add_word(_as_bytes(letters), values.setdefault(value, value))
        self._automaton.make_automaton()
        self._is_empty = not by_literal

    def candidates(self, utf8: bytes, start: int, end: int) -> list[tuple[int, set[int]]]:
        """Return the places in `utf8[start:end]` where heads may begin, each with the heads, from left to right."""
        found: defaultdict[int, set[int]] = defaultdict(set)
        if self._is_empty:
            return []
        for last, (length, bounded, anywhere) in self._automaton.iter(utf8[start:end].decode("latin-1")):
            at = start + last - length + 1
            if bounded and not (at and utf8[at - 1] in _WORD):
                found[at].update(bounded)
            if anywhere:
                found[at].update(anywhere)
        return sorted(found.items())


def _as_bytes(text: str) -> str:
    """Return a text with one character for each byte of its UTF-8, so that places in it are places in UTF-8."""
    return text.encode().decode("latin-1")


def literal_beginnings(expression: str) -> frozenset[str]:
    """Return literals of which one begins every match of an expression. Raises ValueError if there are none.

    A literal that follows `\\0` must begin a word.
    """
    found = {literal for part in _alternatives(expression) for literal, _ in _read(part)}
    if not found.isdisjoint(("", _BOUNDARY)):
        raise ValueError(f"A head must begin with literal text: {expression[:80]}")
    return frozenset(found)


def _read(expression: str) -> list[_Beginning]:
    """Return the beginnings of what an expression without alternatives matches."""
    found: list[_Beginning] = [("", True)]
    at = 0
    while at < len(expression) and any(is_open for _, is_open in found):
        if expression.startswith(r"\b", at):
            found = [(literal or _BOUNDARY, is_open) for literal, is_open in found]
            at += 2
            continue
        at, options = _read_item(expression, at)
        repeat = expression[at : at + 1]
        if repeat == "*" or expression.startswith("{0", at):
            # It is not there, or begins with one of these; what follows more of them is not worked out.
            options = [*((literal, False) for literal, _ in options), ("", True)]
            at = expression.index("}", at) + 1 if repeat == "{" else at + 1
            at += expression.startswith("?", at)
        elif repeat in ("+", "{"):
            options = [(literal, False) for literal, _ in options]
        elif repeat == "?":
            options = [*options, ("", True)]
            at += 1
        longer = [_joined(one, two, is_open=is_open) for one, was_open in found if was_open for two, is_open in options]
        longer += [beginning for beginning in found if not beginning[1]]
        if len(longer) > _MAX_BEGINNINGS and all(literal.strip(_BOUNDARY) for literal, _ in found):
            return [(literal, False) for literal, _ in found]
        found = list(dict.fromkeys(longer))
    return found


def _joined(one: str, two: str, *, is_open: bool) -> _Beginning:
    whole = one + (two.removeprefix(_BOUNDARY) if one else two)
    enough = _ENOUGH if whole.isascii() else _ENOUGH_BEYOND_ASCII
    return whole[:enough], is_open and len(whole) < enough


def _read_item(expression: str, at: int) -> tuple[int, list[_Beginning]]:
    """Return where one item of an expression (a character, a class, a group) ends, and how it may begin."""
    end = _end_of_item(expression, at)
    item = expression[at:end]
    if item.startswith("(?:"):
        return end, [one for part in _alternatives(item[3:-1]) for one in _read(part)]
    if item[0] == "[":
        letters = item[1:-1].replace("\\", "")
        is_small = item[1] != "^" and len(letters) <= 8 and not letters[1:-1].count("-") and not item.count("\\p")
        return end, [(letter, True) for letter in letters] if is_small else [("", False)]
    if item[0] == "\\":
        return end, [("", False) if item[1].isalnum() else (item[1], True)]
    return end, [("", False) if item in _NO_LITERAL else (item, True)]


def _alternatives(expression: str) -> Iterator[str]:
    """Yield the parts between the bars of an expression that stand outside of groups and classes."""
    start = at = 0
    while at < len(expression):
        if expression[at] == "|":
            yield expression[start:at]
            start = at + 1
        at = _end_of_item(expression, at)
    yield expression[start:]


def _end_of_item(expression: str, at: int) -> int:
    if expression[at] == "\\":
        return at + 2
    if expression[at] == "[":
        # A bracket right at the beginning of a class is one of its letters.
        at += 2 + expression.startswith("^", at + 1)
        while expression[at] != "]":
            at += 1 + (expression[at] == "\\")
    elif expression[at] == "(":
        at += 1
        while expression[at] != ")":
            at = _end_of_item(expression, at)
    return at + 1
