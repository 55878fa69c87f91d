"""Ollama's API: names, times, counts and errors that its endpoints share.

Source: Ollama's API reference and its server's types (August 2026).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from apps.gateway.canonical.events import Summary
from apps.gateway.dialects.chat.openai.wire import encode as encode
from apps.gateway.dialects.reading.answers import exact_number, message_with_field
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import ApiError
from apps.kernel.rest.envelopes import Family

NAME: Final = "ollama"
# One JSON object on each line.
NDJSON: Final = "application/x-ndjson"
_NANOSECONDS: Final = 1_000_000
_YEAR_10000: Final = 253_402_300_800
_LATEST: Final = ":latest"


def model_name(name: str) -> str:
    """Return a model's name without the tag `latest`, which Ollama's clients add where a name has no tag."""
    return name.removesuffix(_LATEST) or name


def write_time(seconds: int) -> str:
    """Return a moment in Unix seconds as Ollama writes it; now for a moment that is not known."""
    known = seconds if 0 < seconds < _YEAR_10000 else int(time.time())
    return datetime.fromtimestamp(known, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_counts(summary: Summary) -> Record:
    """Return the counts of tokens and the durations in nanoseconds, with the gateway's cost in USD and report.

    The prompt's duration is the time to the first content. No duration is 0: clients divide by them.
    """
    total = max(summary.duration * _NANOSECONDS, 2)
    prompt = min(max((summary.time_to_first_token or 0) * _NANOSECONDS, 1), total - 1)
    return {
        "total_duration": total,
        "load_duration": 0,
        "prompt_eval_count": summary.usage.prompt_tokens,
        "prompt_eval_duration": prompt,
        "eval_count": summary.usage.completion_tokens,
        "eval_duration": total - prompt,
        "cost_usd": {part: exact_number(amount) for part, amount in summary.cost.items()},
        "metadata": summary.metadata,
    }


def error_body(error: ApiError) -> dict[str, Any]:
    """Return an error as the format's clients read it: a text, and beside it the gateway's code and the field."""
    return {"error": message_with_field(error), "code": error.code, "param": error.param}


def write_error(error: ApiError) -> bytes:
    """Return an error's body."""
    return encode(error_body(error))


ERRORS: Final = Family("ollama", error_body, "OllamaError")
