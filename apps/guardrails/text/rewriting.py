"""Rewriting of a text where a pattern matches, with the way back from what came out to what it was made of."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain

import re2

from apps.guardrails.text.scanned_text import ScannedText

Origin = Callable[[int, int], tuple[int, int]]


class _Rewriting:
    """A text rewritten: what came out, and the way back to the source."""

    def __init__(self, source: str, replacements: Sequence[tuple[int, int, str]]) -> None:
        """Take the replacements from left to right: start and end in the source, and the new text."""
        self._starts = [start for start, _, _ in replacements]
        self._ends = [end for _, end, _ in replacements]
        self._by = [by for _, _, by in replacements]
        kept = [source[start:end] for start, end in zip([0, *self._ends], [*self._starts, len(source)], strict=True)]
        self.text = "".join(chain.from_iterable(zip(kept, [*self._by, ""], strict=True)))

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of the source that became `text[start:end]`, which is not empty."""
        return self._character(start)[0], self._character(end - 1)[1]

    @functools.cached_property
    def _written(self) -> list[int]:
        """The ends of the replacements in the result."""
        grown = (len(by) - end + start for start, end, by in zip(self._starts, self._ends, self._by, strict=True))
        return [end + by_now for end, by_now in zip(self._ends, accumulate(grown), strict=True)]

    def _character(self, at: int) -> tuple[int, int]:
        piece = bisect_right(self._written, at)
        if piece < len(self._by) and at >= self._written[piece] - len(self._by[piece]):
            return self._starts[piece], self._ends[piece]
        start = at - self._written[piece - 1] + self._ends[piece - 1] if piece else at
        return start, start + 1


def rewrite(
    source: ScannedText, pattern: re2._Regexp, by: Callable[[re2._Match[bytes]], bytes | None]
) -> tuple[str, Origin]:
    """Return a text with the matches of `pattern`, which reads UTF-8, replaced, and the way back to `source.raw`.

    For a pattern with a group, only the match of the first group is replaced; nothing where `by` returns None.
    """
    group = min(pattern.groups, 1)
    replaced = ((match.span(group), by(match)) for match in pattern.finditer(source.utf8))
    rewriting = _Rewriting(
        source.raw,
        [
            (*source.byte_origin(*span), new.decode("utf-8", "surrogatepass"))
            for span, new in replaced
            if new is not None
        ],
    )
    return rewriting.text, rewriting.origin
