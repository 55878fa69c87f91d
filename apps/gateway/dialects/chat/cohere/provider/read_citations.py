"""Cohere Chat v2, provider side: reads citations into OpenAI's annotations.

Knows documents and outputs of tools, and where in them an address stands. Must never know where an answer came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apps.gateway.dialects.chat.cohere.shared.wire import Record

_ADDRESSES = ("url", "uri", "link", "source")


def read_citation(citation: Record) -> Iterator[Record]:
    """Yield a citation for each source that has an address; those of thinking and of plans are not of the text."""
    if citation.get("type", "TEXT_CONTENT") != "TEXT_CONTENT":
        return
    start, end = _place(citation.get("start")), _place(citation.get("end"))
    sources = citation.get("sources")
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, dict) and (found := _located(source)):
            yield {
                "type": "url_citation",
                "url_citation": {**found, "start_index": start, "end_index": max(start, end)},
            }


def _located(source: Record) -> Record | None:
    """Return address and title of a source, or None where it has no address."""
    for kind in ("document", "tool_output"):
        inner = source.get(kind)
        if not isinstance(inner, dict):
            continue
        for name in _ADDRESSES:
            url = inner.get(name)
            if isinstance(url, str) and url.startswith(("https://", "http://")):
                title = inner.get("title")
                return {"url": url, "title": title if isinstance(title, str) and title else url}
    return None


def _place(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
