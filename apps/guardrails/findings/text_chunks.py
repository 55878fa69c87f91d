"""Chunking with overlap: a long text is scanned chunk by chunk, so that no single step takes long.

Scans on a thread let others run between chunks; folding or searching tens of megabytes at once would not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from apps.guardrails.findings.scan_types import Span
from apps.guardrails.text.scanned_text import ScannedText

# Characters of one piece.
CHUNK_LENGTH = 256 * 1024
# Characters that a chunk shares with its neighbor: more than the longest match. A match inside the shared part belongs
# to the neighbor, which sees the text around it.
OVERLAP = 20_000


class TextChunk(NamedTuple):
    """One piece of a text: its beginning there, and the part of the chunk that no other chunk shares."""

    text: ScannedText
    start: int
    inner: tuple[int, int]

    def to_text_span(self, span: Span) -> Span | None:
        """Return a span of the piece as one of the whole text; None where it is a neighbour's to find."""
        if span.end <= self.inner[0] or span.start >= self.inner[1]:
            return None
        if not self.start:
            return span
        return Span(span.start + self.start, span.end + self.start, span.pattern, span.label)


def split_into_chunks(text: ScannedText) -> Iterator[TextChunk]:
    """Yield the text itself, or the pieces of a long one; the parts that are theirs alone follow one another."""
    size = len(text.raw)
    if size <= CHUNK_LENGTH:
        yield TextChunk(text, 0, (0, size))
        return
    step = CHUNK_LENGTH - 2 * OVERLAP
    for start in range(0, size - 2 * OVERLAP, step):
        piece = ScannedText(text.raw[start : start + CHUNK_LENGTH])
        first = OVERLAP if start else 0
        last = CHUNK_LENGTH - OVERLAP if start + CHUNK_LENGTH < size else len(piece.raw)
        yield TextChunk(piece, start, (first, last))
