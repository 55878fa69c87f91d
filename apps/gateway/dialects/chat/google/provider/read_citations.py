"""Google generateContent, provider side: reads `groundingMetadata` into OpenAI's annotations.

Knows that Google counts bytes of UTF-8 where OpenAI counts characters. Must never know where an answer came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apps.gateway.dialects.chat.google.shared.wire import Record


def read_citations(grounding: Record, text: str) -> Iterator[Record]:
    """Yield a citation for each source of each supported piece of `text`; for all of it where no pieces are named."""
    chunks = [_source(chunk) for chunk in _entries(grounding, "groundingChunks")]
    supports = [entry for entry in _entries(grounding, "groundingSupports") if isinstance(entry, dict)]
    if not supports:
        yield from (_citation(source, 0, len(text)) for source in chunks if source)
    for support in supports:
        start, end = _span(support.get("segment"), text)
        for index in _entries(support, "groundingChunkIndices"):
            if isinstance(index, int) and 0 <= index < len(chunks) and (source := chunks[index]):
                yield _citation(source, start, end)


def read_queries(grounding: Record, name: str = "webSearchQueries") -> list[str]:
    """Return what was searched for."""
    return [query for query in _entries(grounding, name) if isinstance(query, str) and query]


def _source(chunk: Any) -> Record | None:
    """Return where a chunk is from, or None where it has no address."""
    if not isinstance(chunk, dict):
        return None
    for kind in ("web", "retrievedContext", "maps"):
        inner = chunk.get(kind)
        if isinstance(inner, dict) and isinstance(url := inner.get("uri"), str) and url:
            title = inner.get("title")
            return {"url": url, "title": title if isinstance(title, str) else url}
    return None


def _citation(source: Record, start: int, end: int) -> Record:
    return {"type": "url_citation", "url_citation": {**source, "start_index": start, "end_index": end}}


def _span(segment: Any, text: str) -> tuple[int, int]:
    """Return where a piece stands, in characters; all of the text where that cannot be told."""
    stated: Record = segment if isinstance(segment, dict) else {}
    start, end, words = stated.get("startIndex", 0), stated.get("endIndex"), stated.get("text")
    data = text.encode("utf-8", "replace")
    if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= len(data):
        before, piece = data[:start].decode("utf-8", "ignore"), data[start:end].decode("utf-8", "ignore")
        if not isinstance(words, str) or piece == words:
            return len(before), len(before) + len(piece)
    if isinstance(words, str) and words and (place := text.find(words)) >= 0:
        return place, place + len(words)
    return 0, len(text)


def _entries(record: Record, name: str) -> list[Any]:
    entries = record.get(name)
    return entries if isinstance(entries, list) else []
