"""Search of a text for the heads of many patterns at once.

One automaton looks for them all, and one more where a text is not ASCII: an automaton keeps a state for every mix of
heads that a text is in the middle of, and most have a letter that English does not. Whoever asks tells which head it
is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby

import re2

from apps.guardrails.regex.re2_patterns import compile_re2, find_last_end

# Memory in which an automaton may keep its states, a third of it for those of one direction. Fourteen million
# characters in forty languages made 50 MB of them; where there is too little room they are made again and again, which
# takes ten times as long as the search.
_MEMORY = 192 << 20
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_GROUP = re.compile(r"\((?:\\.|[^()\\])*\)")
_OPTIONAL = re.compile(r"(?:\\.|.)(?:[*?]|\{0)")


class HeadSearch:
    """Many heads that are looked for together."""

    def __init__(self, heads: Iterable[str]) -> None:
        """Compile expressions."""
        words = [word for head in heads for word in split_alternatives(head)]
        other = [word for word in words if needs_other_than_ascii(word)]
        self._anywhere = _compiled([word for word in words if not needs_other_than_ascii(word)])
        self._beyond_ascii = _compiled(other)

    def starts(self, utf8: bytes, start: int, end: int) -> Iterator[int]:
        """Yield the places from `start` to `end` where a head begins, from left to right."""
        found = [_starts(pattern, utf8, start, end) for pattern in self._patterns(utf8)]
        return found[0] if len(found) == 1 else (at for at, _ in groupby(merge(*found)))

    def last_end(self, utf8: bytes, at: int) -> int:
        """Return where the last head ends of those that begin at `at`, where one does, or later."""
        found = ((pattern, pattern.search(utf8, at)) for pattern in self._patterns(utf8))
        return max(find_last_end(pattern, utf8, match) for pattern, match in found if match is not None)

    def _patterns(self, utf8: bytes) -> list[re2._Regexp]:
        return self._anywhere if utf8.isascii() else self._anywhere + self._beyond_ascii


def split_alternatives(expression: str) -> list[str]:
    """Return the alternatives of an expression; those of its only group, if it is one group."""
    depth, start, found = 0, 0, []
    pieces = re.finditer(rf"\\.|{_CLASS.pattern}|[()|]", expression)
    closed = [0]
    for piece in pieces:
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if depth == 0 and piece[0] == ")":
            closed.append(piece.end())
        if depth == 0 and piece[0] == "|":
            found.append(expression[start : piece.start()])
            start = piece.end()
    found.append(expression[start:])
    if len(found) == 1 and expression.startswith("(?:") and closed == [0, len(expression)]:
        return split_alternatives(expression[3:-1])
    return found


def needs_other_than_ascii(expression: str) -> bool:
    """Tell whether what matches is never ASCII: a letter that is not stands in it, outside of groups and classes."""
    rest = _CLASS.sub("x", expression)
    while rest != (rest := _GROUP.sub("x", rest)):
        pass
    return not _OPTIONAL.sub("", rest).isascii()


def _compiled(words: list[str]) -> list[re2._Regexp]:
    """Return one automaton for all; none where there are none."""
    return [compile_re2("|".join(words), _MEMORY)] if words else []


def _starts(pattern: re2._Regexp, utf8: bytes, start: int, end: int) -> Iterator[int]:
    while match := pattern.search(utf8, start, end):
        yield match.start()
        start = match.start() + 1
