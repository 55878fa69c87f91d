"""OpenAI's formats: pages of the web that a provider lists beside an answer, as citations at its beginning."""

from __future__ import annotations

from typing import Any

from apps.gateway.dialects.reading.fields import Record


def citations_of(pages: Any) -> list[Record]:
    """Return a `url_citation` for each page of a list of addresses or of `{url, title}`, in the order in which the text
    counts them.

    The lists do not tell which part of the text a page is cited for: the citation covers no characters.
    """
    found = map(_page, pages if isinstance(pages, list) else ())
    return [
        {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 0, **page}} for page in found if page
    ]


def _page(entry: Any) -> Record | None:
    """Return a page's address and title, which is the address where there is none."""
    url = entry.get("url") if isinstance(entry, dict) else entry
    if not isinstance(url, str) or not url:
        return None
    title = entry.get("title") if isinstance(entry, dict) else None
    return {"url": url, "title": title if isinstance(title, str) and title else url}
