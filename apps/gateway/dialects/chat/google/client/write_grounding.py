"""Google generateContent, client side: writes citations as `groundingMetadata`, and log probabilities.

Knows that Google counts bytes of UTF-8 where OpenAI, in whose words citations come, counts characters. Must never know
where an answer came from.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.dialects.adapting.document_citations import LOCATIONS
from apps.gateway.dialects.chat.google.shared.wire import Record


def write_grounding(citations: list[Record], text: str, queries: list[str]) -> Record:
    """Return what was searched for and what pieces of a text rest on: each source once, and the pieces that it
    supports; pieces of documents that are cited; empty for nothing."""
    sources: dict[tuple[str, str], int] = {}
    supports: dict[tuple[int, int], list[int]] = {}
    documents: list[Record] = []
    for citation in citations:
        if citation.get("type") in LOCATIONS and (document := _document(citation)) not in documents:
            documents.append(document)
        page = citation.get("url_citation")
        if not isinstance(page, dict) or not isinstance(url := page.get("url"), str):
            continue
        title = page.get("title")
        source = sources.setdefault((url, title if isinstance(title, str) and title else url), len(sources))
        start, end = _place(page.get("start_index")), _place(page.get("end_index"))
        supported = supports.setdefault((min(start, len(text)), min(end, len(text))), [])
        if source not in supported:
            supported.append(source)
    searched: Record = {"webSearchQueries": asked} if (asked := list(filter(None, queries))) else {}
    if not sources and not documents:
        return searched
    return {
        **searched,
        "groundingChunks": [*({"web": {"uri": url, "title": title}} for url, title in sources), *documents],
        "groundingSupports": [
            {"segment": _segment(text, start, end), "groundingChunkIndices": indices}
            for (start, end), indices in supports.items()
            if start < end
        ],
    }


def _document(citation: Record) -> Record:
    """Return the piece of a document or of a client's search result that is cited; it supports no certain piece of the
    answer."""
    title, text = citation.get("document_title") or citation.get("title"), citation.get("cited_text")
    stated = {"uri": citation.get("source"), "title": title, "text": text}
    return {"retrievedContext": {name: value for name, value in stated.items() if isinstance(value, str) and value}}


def _place(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _segment(text: str, start: int, end: int) -> Record:
    before = len(text[:start].encode("utf-8", "replace"))
    piece = text[start:end]
    wire: Record = {"endIndex": before + len(piece.encode("utf-8", "replace")), "text": piece}
    return {"startIndex": before, **wire} if before else wire


def write_logprobs(likely: list[Any]) -> Record:
    """Return log probabilities, as OpenAI writes them, in Google's words."""
    tokens = [token for token in likely if isinstance(token, dict)]
    wire: Record = {"chosenCandidates": [_token(token) for token in tokens]}
    if any(token.get("top_logprobs") for token in tokens):
        wire["topCandidates"] = [
            {"candidates": [_token(other) for other in token.get("top_logprobs") or () if isinstance(other, dict)]}
            for token in tokens
        ]
    return wire


def _token(token: Record) -> Record:
    return {"token": token.get("token", ""), "logProbability": token.get("logprob", 0.0)}
