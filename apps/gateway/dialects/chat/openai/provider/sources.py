"""OpenAI Chat Completions, provider side: reads search results beside an answer (`citations`, `search_results`) into
`annotations`.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.dialects.chat.openai.shared.listed_pages import citations_of

Record = dict[str, Any]


def read_sources(answer: Record) -> list[Record]:
    """Return a citation for each page that `search_results` lists, else `citations`; none where nothing is listed."""
    return (citations_of(answer.get("search_results")) or citations_of(answer.get("citations"))) if answer else []
