"""OpenAI Chat Completions, both sides: token usage, read into disjoint classes and written for clients.

Nonsense (null, negative, fractions, more parts than whole) is tolerated: every class is at least 0, and the classes add
up to the provider's totals.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from apps.gateway.canonical.events import Summary
from apps.gateway.dialects.reading.exact_numbers import exact_number
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.dialects.reading.reported_counts import has_odd_count, read_count, read_ticks
from apps.kernel.usage import Usage

# Fields that do not describe parts of the counts.
_TOTALS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
# The counts that an answer always has, and those beside them and inside them that are read.
_MAIN = ("prompt_tokens", "completion_tokens")
_BESIDE = (
    *("reasoning_tokens", "prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens"),
    *("cache_creation_input_tokens", "num_search_queries"),
)
_INSIDE = ("cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens", "reasoning_tokens")
# Anthropic's name for tokens that were written to a cache.
_STORED = "cache_creation_input_tokens"
_FREE = Decimal(0)
_SERVER_TOOLS = ("server_tool_use_details", "server_tool_use")
# USD: no search costs more.
_MAX_TOLD_COST = 100


def read_usage(reported: Any) -> Usage | None:
    """Return the counts, or None when none are reported; a provider that counts nothing on both sides says 0."""
    if not isinstance(reported, dict):
        return None
    prompt, completion = count_of(reported, "prompt_tokens"), count_of(reported, "completion_tokens")
    if not prompt and not completion:
        both = reported.get("prompt_tokens"), reported.get("completion_tokens")
        return Usage() if all(type(told) is int and not told for told in both) else None
    if reported.keys() <= _TOTALS:
        return Usage(input=prompt, output=completion, estimated=has_odd_count(reported, main=_MAIN))
    read, written = _inside(reported, "prompt_tokens_details"), _inside(reported, "completion_tokens_details")
    cached = _first(read, "cached_tokens") or _first(
        reported, "prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens"
    )
    stored = _first(read, "cache_write_tokens", _STORED) or _first(reported, _STORED)
    if max(cached, stored) > prompt:
        # Servers that count like Anthropic leave both out of the prompt.
        prompt += cached + stored
    # Some servers report tokens that were just written as read as well.
    stored = min(stored, prompt - cached)
    text = prompt - cached - stored
    media = _inside(read, "cached_tokens_details")
    cached_audio = min(_first(media, "audio_tokens"), cached)
    audio = min(_first(read, "audio_tokens"), text)
    images = min(_first(read, "image_tokens"), text - audio)

    thought = _first(written, "reasoning_tokens") or _first(reported, "reasoning_tokens")
    total = count_of(reported, "total_tokens")
    if thought and total == count_of(reported, "prompt_tokens") + completion + thought:
        # Servers that count like xAI leave thinking out of the completion; the total shows it.
        completion += thought
    elif "citation_tokens" in reported:
        # Servers that count like Perplexity leave it out of the total as well.
        completion += thought
    thought = min(thought, completion)
    audio_out = min(_first(written, "audio_tokens"), completion - thought)
    images_out = min(_first(written, "image_tokens"), completion - thought - audio_out)
    return Usage(
        input=text - audio - images,
        cache_read=cached,
        cache_write=stored,
        cache_read_audio=cached_audio,
        cache_read_image=min(_first(media, "image_tokens"), cached - cached_audio),
        audio_input=audio,
        image_input=images,
        output=completion - thought - audio_out - images_out,
        reasoning=thought,
        audio_output=audio_out,
        image_output=images_out,
        web_searches=_searches(reported),
        search_size=size if isinstance(size := reported.get("search_context_size"), str) and len(size) < 20 else "",
        estimated=_has_odd_counts(reported, read, written),
        reported_search_cost=stated_cost(reported.get("cost"), "request_cost"),
        reported_cost=read_ticks(reported),
    )


def _has_odd_counts(reported: Record, read: Record, written: Record) -> bool:
    """Return whether some count is none: then the bill is an estimate."""
    return (
        has_odd_count(reported, *_BESIDE, main=_MAIN)
        or has_odd_count(read, *_INSIDE)
        or has_odd_count(written, *_INSIDE)
        or has_odd_count(read.get("cached_tokens_details"), *_INSIDE)
        or any(has_odd_count(reported.get(name), "web_search_requests") for name in _SERVER_TOOLS)
    )


def stated_cost(report: Any, name: str) -> Decimal | None:
    """Return what Perplexity says that it takes for its search, in USD, beside what it takes for tokens."""
    told = report.get(name) if isinstance(report, dict) else None
    if not isinstance(told, int | float | Decimal) or isinstance(told, bool) or not 0 <= told <= _MAX_TOLD_COST:
        return None
    return Decimal(str(told))


def _searches(reported: Record) -> int:
    """Return the number of web searches; one where only their extent is reported."""
    inner = next((tools for name in _SERVER_TOOLS if (tools := _inside(reported, name))), {})
    found = _first(inner, "web_search_requests") or count_of(reported, "num_search_queries")
    priced = stated_cost(reported.get("cost"), "request_cost") is not None
    return found or int(priced or isinstance(reported.get("search_context_size"), str))


def write_usage(summary: Summary, *, live: bool = False, details: bool = False) -> Record:
    """Return `usage` with its cost in USD; of a `live` answer also in OpenRouter's words, with `details` its parts."""
    usage, cost = summary.usage, summary.cost
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "reasoning_tokens": usage.reasoning,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write + usage.cache_write_1h,
            "audio_tokens": usage.audio_input,
            "image_tokens": usage.image_input,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": usage.audio_output,
            "image_tokens": usage.image_output,
        },
        **({"cost": exact_number(cost["total"])} if live and "total" in cost else {}),
        **({"cost_details": _cost_details(cost)} if details else {}),
        **{f"cost_usd_{part}": exact_number(amount) for part, amount in cost.items()},
    }


def _cost_details(cost: dict[str, Decimal]) -> Record:
    prompt = cost.get("input", _FREE) + cost.get("cached_input", _FREE)
    return {
        "upstream_inference_cost": None,
        "upstream_inference_prompt_cost": exact_number(prompt),
        "upstream_inference_completions_cost": exact_number(cost.get("output", _FREE)),
    }


def _inside(record: Record, name: str) -> Record:
    """Return an object inside, an empty one when there is none."""
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _first(record: Record, *names: str) -> int:
    """Return the first count under these names that is not 0."""
    if record:
        for name in names:
            if count := count_of(record, name):
                return count
    return 0


def count_of(record: Record, name: str) -> int:
    """Return a count; 0 for any other value."""
    return read_count(record.get(name))
