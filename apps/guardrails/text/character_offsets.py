"""Offsets of characters in UTF-8, counted block by block."""

from __future__ import annotations

import functools

# Deleting these bytes from UTF-8 leaves one byte a character.
_CONTINUATION = bytes(range(0x80, 0xC0))
_BLOCK = 1024


class CharacterOffsets:
    """How many characters stand before a byte, counted block by block, and only once."""

    def __init__(self, utf8: bytes) -> None:
        self._utf8 = utf8
        self._is_ascii = utf8.isascii()

    def at(self, offset: int) -> int:
        """Return the number of characters that begin before the byte at `offset`."""
        if self._is_ascii:
            return offset
        block = offset // _BLOCK
        return self._before[block] + len(self._utf8[block * _BLOCK : offset].translate(None, _CONTINUATION))

    @functools.cached_property
    def _before(self) -> list[int]:
        before = [0]
        for start in range(0, len(self._utf8), _BLOCK):
            before.append(before[-1] + len(self._utf8[start : start + _BLOCK].translate(None, _CONTINUATION)))
        return before
