"""Bedrock Converse, provider side: reads citations of documents in Anthropic's words, and writes them back."""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.dialects.chat.bedrock.shared.wire import Record

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


def write_cited_text(text: str, citations: Any) -> Record | None:
    """Return an earlier answer's text with the citations of documents that came with it, in Anthropic's words; None
    where there are none."""
    written = map(_write_citation, citations if isinstance(citations, list) else ())
    if not (cited := [citation for citation in written if citation is not None]):
        return None
    return {"citationsContent": {"content": [{"text": text}], "citations": cited}}


def _write_citation(note: Any) -> Record | None:
    """Return a citation as Bedrock has it; None for that of a page of the web, which is not taken back."""
    kind = note.get("type") if isinstance(note, dict) else None
    for name, (word, bound) in _PLACES.items():
        if kind != word:
            continue
        place = {"start": _number(note.get(f"start_{bound}")), "end": _number(note.get(f"end_{bound}"))}
        cited: Record = {"sourceContent": [{"text": text}]} if (text := _text(note.get("cited_text"))) else {}
        if word == "search_result_location":
            place, title = {"searchResultIndex": _number(note.get("search_result_index")), **place}, note.get("title")
            cited |= {"source": source} if (source := _text(note.get("source"))) else {}
        else:
            place, title = {"documentIndex": _number(note.get("document_index")), **place}, note.get("document_title")
        named: Record = {"title": title} if _text(title) else {}
        return {**named, **cited, "location": {name: place}}
    return None


def _cited_text(citation: Record) -> str:
    pieces = citation.get("sourceContent")
    texts = [piece.get("text") for piece in (pieces if isinstance(pieces, list) else ()) if isinstance(piece, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
