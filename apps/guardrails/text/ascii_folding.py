"""ASCII folding of digits, hyphens, blanks and wide letters, so that numbers and addresses can be matched.

Colour codes of terminals become blanks, for their last letter would precede the searched text directly. Unlike
`folding` it keeps case, lines and every visible letter, because numbers, addresses and keys depend on them. Each
character is folded independently of its neighbors: the text is made in one pass, and offsets of the original are
computed in blocks, only when asked for.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_right
from itertools import accumulate

from apps.guardrails.text.character_offsets import CharacterOffsets
from apps.guardrails.text.unicode_tables import beyond_ascii

_BLOCK = 256
_UTF8 = ("utf-8", "surrogatepass")
_INVISIBLE = (
    *(0xAD, 0x34F, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065)),
    *(*range(0x2066, 0x2070), *range(0xFE00, 0xFE10), 0xFEFF, *range(0xE0000, 0xE0080)),
)
_BLANKS = (0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_DASHES = (*range(0x2010, 0x2016), 0x2212, 0xFE58, 0xFE63, 0xFF0D)
# The zeros of other scripts, of full width and of mathematics.
_ZEROS = (0x660, 0x6F0, 0x966, 0x9E6, 0xE50, 0xFF10, *range(0x1D7CE, 0x1D800, 10))
# Latin letters and signs in full width and of mathematics.
_WIDE = (0xFF0B, 0xFF0E, *range(0xFF20, 0xFF3B), 0xFF3F, *range(0xFF41, 0xFF5B), *range(0x1D400, 0x1D7CE))
_PLAIN = (
    {chr(code): "" for code in _INVISIBLE}
    | {chr(code): " " for code in _BLANKS}
    | {chr(code): "-" for code in _DASHES}
    | {chr(zero + digit): str(digit) for zero in _ZEROS for digit in range(10)}
    | {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in _WIDE}
)
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,16}m")


class AsciiFoldedText:
    """The plain form of one text: `utf8`, and the way back from it."""

    def __init__(self, raw: str, utf8: bytes) -> None:
        """Take a text and its UTF-8."""
        self._raw = raw
        self._becomes: dict[str, str] = {}
        if not raw.isascii() and not _PLAIN.keys().isdisjoint(beyond_ascii(utf8)):
            # A table of just the characters there are: looking one up never fails, which would cost the most.
            self._becomes = {character: _PLAIN.get(character, character) for character in set(raw)}
            utf8 = raw.translate({ord(one): plain for one, plain in self._becomes.items()}).encode(*_UTF8)
        if b"\x1b[" in utf8:
            utf8 = _COLOUR.sub(lambda found: b" " * len(found[0]), utf8)
        self.utf8 = utf8

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of the raw text that became `utf8[start:end]` (which is not empty)."""
        if self._raw.isascii():
            return start, end
        if self._is_even:
            return self._characters.at(start + 1) - 1, self._characters.at(end)
        return self._character_of(start), self._character_of(end - 1) + 1

    @functools.cached_property
    def _is_even(self) -> bool:
        """Whether every character became one, so that characters of both texts have the same numbers."""
        return all(len(plain) == 1 for plain in self._becomes.values())

    @functools.cached_property
    def _characters(self) -> CharacterOffsets:
        return CharacterOffsets(self.utf8)

    def _character_of(self, offset: int) -> int:
        """Return the character of the raw text that became the byte at `offset`."""
        block = bisect_right(self._starts, offset) - 1
        at = block * _BLOCK
        ends = accumulate(map(self._sizes.__getitem__, self._raw[at : at + _BLOCK]), initial=self._starts[block])
        return at + bisect_right(list(ends), offset) - 1

    @functools.cached_property
    def _starts(self) -> list[int]:
        """Where each block of characters begins in `utf8`."""
        size_of = self._sizes.__getitem__
        sizes = (sum(map(size_of, self._raw[at : at + _BLOCK])) for at in range(0, len(self._raw), _BLOCK))
        return list(accumulate(sizes, initial=0))[:-1]

    @functools.cached_property
    def _sizes(self) -> dict[str, int]:
        """How many bytes of `utf8` each character becomes."""
        return {character: len(plain.encode(*_UTF8)) for character, plain in self._becomes.items()}
