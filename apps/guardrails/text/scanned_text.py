"""Views of a scanned text: raw, bytes, normalized, ASCII-folded; offsets of each lead back to the raw text.

Everything is linear and made once, when asked for; offsets are only computed for matches.
"""

from __future__ import annotations

import functools

from apps.guardrails.text.ascii_folding import AsciiFoldedText
from apps.guardrails.text.character_offsets import CharacterOffsets
from apps.guardrails.text.normalization import NormalizedText, normalize_utf8


class ScannedText:
    """One text. `raw` is what the client wrote; offsets of spans always count its characters."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    @functools.cached_property
    def utf8(self) -> bytes:
        """`raw` in UTF-8, as the regular expressions read it."""
        return self.raw.encode("utf-8", "surrogatepass")

    @functools.cached_property
    def normalized(self) -> str:
        """`raw` with everything gone that hides a word and that a model does not mind (see `normalization`)."""
        return self.normalized_utf8.decode("utf-8", "surrogatepass")

    @functools.cached_property
    def normalized_utf8(self) -> bytes:
        """`normalized` in UTF-8."""
        return normalize_utf8(self.raw, self.utf8)

    @functools.cached_property
    def ascii_folded(self) -> AsciiFoldedText:
        """`raw` with its numbers and addresses written plainly (see `ascii_folding`)."""
        return AsciiFoldedText(self.raw, self.utf8)

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of `raw` that became `folded[start:end]`."""
        return self._normalized.origin(start, end)

    def byte_origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of `raw` that is `utf8[start:end]`."""
        return self._characters.at(start), self._characters.at(end)

    def normalized_byte_origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of `raw` that became `folded_utf8[start:end]`."""
        return self.origin(self._normalized_characters.at(start), self._normalized_characters.at(end))

    @functools.cached_property
    def _normalized(self) -> NormalizedText:
        return NormalizedText(self.raw, self.normalized)

    @functools.cached_property
    def _characters(self) -> CharacterOffsets:
        return CharacterOffsets(self.utf8)

    @functools.cached_property
    def _normalized_characters(self) -> CharacterOffsets:
        return CharacterOffsets(self.normalized_utf8)
