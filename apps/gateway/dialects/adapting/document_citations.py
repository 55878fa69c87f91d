"""Citations of documents: a place in a document of the request, in the words of Anthropic's format.

Other formats have citations of pages of the web alone; theirs are `url_citation` (`canonical/events.py`).
"""

from __future__ import annotations

from typing import Any, Final

# The kinds of such citations. A note of one of these kinds is written for Anthropic's clients as it is.
LOCATIONS: Final = frozenset({"char_location", "page_location", "content_block_location", "search_result_location"})


def wants_citations(fields: Any) -> bool:
    """Return whether a document's fields, as Anthropic's format has them, ask that the answer cites it."""
    asked = fields.get("citations") if isinstance(fields, dict) else None
    return isinstance(asked, dict) and asked.get("enabled") is True
