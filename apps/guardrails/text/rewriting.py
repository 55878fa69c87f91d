"""Rewriting of a text where a pattern matches, with the way back from what came out to what it was made of.

Knows offsets. Must never know what is rewritten, or why.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import re2

from apps.guardrails.text.scanned_text import ScannedText

Origin = Callable[[int, int], tuple[int, int]]


class Rewriting:
    """A text rewritten: `text`, and the way back to the source."""

    def __init__(self, source: ScannedText) -> None:
        """Begin with a text of which nothing is rewritten; `replace` is called from left to right."""
        self._source = source.raw
        self._pieces: list[str] = []
        # Where pieces begin, in the source and in what came out; each piece as it stood, or what took its place.
        self._from: list[int] = []
        self._to: list[int] = []
        self._kept: list[bool] = []
        self._read = self._written = 0

    def replace(self, start: int, end: int, by: str) -> None:
        """Write `by` in the place of `source[start:end]`."""
        self._keep(start)
        self._add(start, by, kept=False)
        self._read = end

    def _keep(self, end: int) -> None:
        if end > self._read:
            self._add(self._read, self._source[self._read : end], kept=True)
            self._read = end

    def _add(self, start: int, piece: str, *, kept: bool) -> None:
        self._pieces.append(piece)
        self._from.append(start)
        self._to.append(self._written)
        self._kept.append(kept)
        self._written += len(piece)

    def finish(self) -> str:
        """Return the whole text; nothing is replaced after."""
        self._keep(len(self._source))
        return "".join(self._pieces)

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of the source that became `text[start:end]`, which is not empty."""
        return self._character(start)[0], self._character(end - 1)[1]

    def _character(self, at: int) -> tuple[int, int]:
        piece = bisect_right(self._to, at) - 1
        start = self._from[piece]
        if self._kept[piece]:
            return start + at - self._to[piece], start + at - self._to[piece] + 1
        return start, self._from[piece + 1] if piece + 1 < len(self._from) else len(self._source)


def rewrite(
    source: ScannedText, pattern: re2._Regexp, by: Callable[[re2._Match[bytes]], bytes | None]
) -> tuple[str, Origin]:
    """Return a text with the matches of `pattern`, which reads UTF-8, replaced, and the way back to `source.raw`.

    Of a pattern with a group, only what the first group matched is replaced; nothing where `by` returns None.
    """
    rewriting = Rewriting(source)
    group = min(pattern.groups, 1)
    for match in pattern.finditer(source.utf8):
        replacement = by(match)
        if replacement is not None:
            rewriting.replace(*source.byte_origin(*match.span(group)), replacement.decode("utf-8", "surrogatepass"))
    return rewriting.finish(), rewriting.origin
