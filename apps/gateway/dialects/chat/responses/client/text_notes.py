"""OpenAI Responses, client side: what is noted on a part of text: citations, log probabilities of its tokens.

Knows how OpenAI's clients want them written. Must never know where the text is.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]


def citation_of(note: Record, start: int, length: int) -> Record:
    """Return a citation flat, as this format has it, placed within a part that begins behind `start` characters."""
    page = note.get("url_citation")
    if not isinstance(page, dict):
        return note
    places = [page.get(name) for name in ("start_index", "end_index")]
    begins, ends = (place - start if isinstance(place, int) and place >= start else None for place in places)
    title, url = page.get("title"), page.get("url")
    return {
        "type": "url_citation",
        **page,
        "start_index": 0 if begins is None else begins,
        "end_index": length if ends is None else ends,
        "title": title if isinstance(title, str) else "",
        "url": url if isinstance(url, str) else "",
    }


def logprob_of(entry: Record) -> Record:
    """Return a log probability with all fields that clients count on."""
    tops = entry.get("top_logprobs")
    likely = [_logprob(top) for top in tops if isinstance(top, dict)] if isinstance(tops, list) else []
    return {**_logprob(entry), "top_logprobs": likely}


def _logprob(entry: Record) -> Record:
    token = entry.get("token")
    stated = {name: value for name, value in entry.items() if value is not None}
    return {"bytes": list(token.encode("utf-8", "replace")) if isinstance(token, str) else [], **stated}
