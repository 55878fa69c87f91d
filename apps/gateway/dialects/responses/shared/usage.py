"""OpenAI Responses: token usage, read into disjoint classes.

The counts are OpenAI's under other names: the input has what came out of a cache, the output has the thinking. Must
never know a price.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.dialects.openai.shared import usage as openai_usage
from apps.kernel.usage import Usage

_NAMES: Final = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "total_tokens": "total_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
}


def read_usage(reported: Any, searches: int) -> Usage | None:
    """Return the counts, or None when none are reported; `searches` are the web searches seen in the answer."""
    if not isinstance(reported, dict):
        return None
    usage = openai_usage.read_usage({ours: reported.get(name) for name, ours in _NAMES.items()})
    return None if usage is None else replace(usage, web_searches=searches)
