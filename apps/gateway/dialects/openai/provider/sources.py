"""OpenAI Chat Completions, provider side: reads search results beside an answer (`citations`, `search_results`) into
`annotations`.

Knows the lists that there are: `search_results` (pages) and `citations` (addresses). Must never know who writes which.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]


def read_sources(answer: Record) -> list[Record]:
    """Return a citation for each page, in the order in which the text counts them; none where nothing is listed.

    The lists do not tell what in the text a page is cited for: the citation stands at its very beginning.
    """
    listed = (_listed(answer, "search_results") or _listed(answer, "citations")) if answer else None
    if not listed:
        return []
    pages = map(_page, listed)
    return [
        {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 0, **page}} for page in pages if page
    ]


def _listed(answer: Record, name: str) -> list[Any]:
    value = answer.get(name)
    return value if isinstance(value, list) else []


def _page(entry: Any) -> Record | None:
    """Return a page's address and title, which is the address where there is none."""
    url = entry.get("url") if isinstance(entry, dict) else entry
    if not isinstance(url, str) or not url:
        return None
    title = entry.get("title") if isinstance(entry, dict) else None
    return {"url": url, "title": title if isinstance(title, str) and title else url}
