"""Ranks and judges texts by the words in them, the same way for the same texts. Pure; knows words and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# A unit is a query over so many documents; one with more tokens counts as several.
UNIT_DOCUMENTS = 100
UNIT_TOKENS = 500
FLAGGED, CLEAN = 0.9375, 0.0078125
_WORD = re.compile(r"\w+")


def relevance_of(document: str, query: str) -> float:
    """Return the share of the query's words that a document has, in sixteenths."""
    wanted = set(_WORD.findall(query.lower()))
    return round(16 * len(wanted & set(_WORD.findall(document.lower()))) / max(len(wanted), 1)) / 16


def rank(query: str, documents: Sequence[str], most: int | None) -> tuple[tuple[int, float], ...]:
    """Return the places of the most relevant documents and how relevant they are, the first of equals first."""
    scored = [(place, relevance_of(document, query)) for place, document in enumerate(documents)]
    return tuple(sorted(scored, key=lambda one: -one[1])[:most])


def search_units_of(tokens: Iterable[int]) -> int:
    """Return the search units of documents with so many tokens each."""
    return -(-sum(max(-(-count // UNIT_TOKENS), 1) for count in tokens) // UNIT_DOCUMENTS)


def judge(text: str, categories: Iterable[str]) -> dict[str, float]:
    """Return a score for each category: a high one for those that the text names."""
    words = text.lower()
    return {name: FLAGGED if name in words else CLEAN for name in categories}
