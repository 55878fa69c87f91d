"""OpenAI Chat Completions, provider side: recognizes context length errors by the words of each server.

Knows words. Must never know whose they are. A limit on tokens in a span of time, which is said alike, is none of them.
"""

from __future__ import annotations

import re
from typing import Final

CODE: Final = "context_length_exceeded"

_WORDS: Final = (
    r"(maximum|max) (context|prompt) length",
    r"longer than the (maximum )?model('s)? (context )?length",
    r"model maximum context length",
    r"reduce the length of the (messages|prompt|input)",
    r"(prompt|input|inputs) (is|are) too long",
    r"input token length too long",
    r"exceed(s|ed)? (the )?model('s)? token limit",
    r"prompt exceeds max length",
    r"range of input length should be",
    r"context window exceeds limit",
    r"exceed(s|ed)? the (model's )?(maximum )?context (window|length|size)",
    r"`inputs` tokens \+ `max_new_tokens` must be <=",
    r"too large for model with \d+ maximum context",
    r"input token count.{0,40}exceeds the maximum number of tokens",
)
_OVERFLOW: Final = re.compile("|".join(_WORDS), re.IGNORECASE)
_RATE: Final = re.compile(r"per (minute|day|hour|second)|rate limit|\bTPM\b", re.IGNORECASE)


def code_of(message: str, code: str | None) -> str | None:
    """Return the code of an error: the one for a request that is too long where its words say so."""
    return CODE if _OVERFLOW.search(message) and not _RATE.search(message) else code
