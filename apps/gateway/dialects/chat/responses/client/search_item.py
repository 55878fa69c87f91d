"""OpenAI Responses, client side: an output item of a web search that a provider of another format made.

Knows the item and the events that tell of it. Must never know what was found, nor which item follows.
"""

from __future__ import annotations

from typing import Final

from apps.gateway.dialects.chat.responses.client.output_items import Item, Record

_KIND: Final = "web_search_call"
# How a search is told to go on, though it is over already.
_STAGES: Final = ("in_progress", "searching", "completed")


class SearchItem(Item):
    """A search of the web; other formats tell of it at once, and some not what it was for."""

    def __init__(self, query: str) -> None:
        super().__init__(_KIND, None)
        self._action: Record = {"type": "search", **({"query": query, "queries": [query]} if query else {})}

    def begun(self) -> Record:
        """Return the search as it begins."""
        return {"id": self.id, "type": self.kind, "status": "in_progress", "action": self._action}

    def wire(self) -> Record:
        """Return the search as it is now."""
        return {**self.begun(), "status": self._status()}

    def end(self, out: list[Record]) -> None:
        """Tell how it went."""
        out += ({"type": f"response.{self.kind}.{stage}", **self.at()} for stage in _STAGES)
