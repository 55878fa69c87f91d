"""Bedrock Converse, provider side: reads a citation of a document as Anthropic's format has it."""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.dialects.bedrock.shared.wire import Record

# Bedrock's word for where in a document: Anthropic's word, and what its bounds are called.
_PLACES: Final = {
    "documentChar": ("char_location", "char_index"),
    "documentPage": ("page_location", "page_number"),
    "documentChunk": ("content_block_location", "block_index"),
    "searchResultLocation": ("search_result_location", "block_index"),
}


def read_citation(citation: Record) -> Record | None:
    """Return the citation of a place in a document or search result; None for that of a page of the web, or of
    nothing."""
    location = citation.get("location")
    for name, (kind, bound) in _PLACES.items():
        place = location.get(name) if isinstance(location, dict) else None
        if not isinstance(place, dict):
            continue
        bounds = {f"start_{bound}": _number(place.get("start")), f"end_{bound}": _number(place.get("end"))}
        title, cited = _text(citation.get("title")), {"type": kind, "cited_text": _cited_text(citation)}
        if kind == "search_result_location":
            at, source = _number(place.get("searchResultIndex")), _text(citation.get("source")) or ""
            return {**cited, "search_result_index": at, "source": source, "title": title, **bounds}
        return {**cited, "document_index": _number(place.get("documentIndex")), "document_title": title, **bounds}
    return None


def _cited_text(citation: Record) -> str:
    pieces = citation.get("sourceContent")
    texts = [piece.get("text") for piece in (pieces if isinstance(pieces, list) else ()) if isinstance(piece, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
