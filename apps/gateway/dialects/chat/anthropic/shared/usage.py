"""Anthropic Messages, both sides: token usage, read into disjoint classes and written for clients.

Anthropic's `input_tokens` exclude tokens that were read from or written to the cache. Nonsense is tolerated: every
class is at least 0.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.service_tier import FAST, USUAL
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.dialects.reading.reported_counts import count_at, has_odd_count
from apps.kernel.usage import ModelPass, Usage, total_usage

# Counts that are read and written here; what else is said in `usage` is passed on.
COUNTS = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "cache_creation",
        "server_tool_use",
        "output_tokens_details",
    }
)
# Passes over models that a bill keeps one by one; of more than these, those over one model are added up.
MAX_PASSES = 100
_MAIN = ("input_tokens", "output_tokens")
_SPEEDS = {"fast": FAST, "standard": USUAL}


def read_usage(reported: Record) -> Usage | None:
    """Return the counts, or None when none are reported: a prompt has at least one token.

    The 5-minute and 1-hour parts of the cached tokens may fall short of the total: the rest counts as 5-minute.
    """
    usage = _tokens(reported)
    calls = reported.get("server_tool_use")
    fetched = count_at(calls, "web_fetch_requests")
    usage = replace(
        usage,
        web_searches=count_at(calls, "web_search_requests"),
        tool_calls={"web_fetch": fetched} if fetched else None,
        service_tier=_SPEEDS.get(str(reported.get("speed")), ""),
        region=_region(reported.get("inference_geo")),
    )
    if passes := _passes(reported.get("iterations"), usage):
        usage = replace(usage, passes=passes)
    return usage if usage.total_tokens or passes else None


def _passes(iterations: Any, whole: Usage) -> tuple[ModelPass, ...]:
    """Return the passes that an answer took over models; none where there was one, which the counts beside it tell.

    The counts beside leave out what compaction and an advisor used, and what an executor read again in between.
    """
    if not isinstance(iterations, list):
        return ()
    passes = []
    for iteration in iterations:
        if isinstance(iteration, dict) and (used := _tokens(iteration)).total_tokens:
            model = iteration.get("model")
            passes.append(ModelPass(model=model[:200] if isinstance(model, str) else "", usage=used))
    if len(passes) == 1 and passes[0].usage.total_tokens == whole.total_tokens and not passes[0].model:
        return ()
    if len(passes) <= MAX_PASSES:
        return tuple(passes)
    models = dict.fromkeys(one.model for one in passes)
    return tuple(
        ModelPass(model=model, usage=total_usage(one.usage for one in passes if one.model == model)) for model in models
    )[:MAX_PASSES]


def _region(geography: Any) -> str:
    if not isinstance(geography, str) or not geography:
        return ""
    return "global" if geography == "not_available" else geography[:40]


def _tokens(reported: Record) -> Usage:
    cache = reported.get("cache_creation")
    split: Record = cache if isinstance(cache, dict) else {}
    hour = count_at(split, "ephemeral_1h_input_tokens")
    written = max(
        count_at(reported, "cache_creation_input_tokens"), hour + count_at(split, "ephemeral_5m_input_tokens")
    )
    output = count_at(reported, "output_tokens")
    thought = min(count_at(reported.get("output_tokens_details"), "thinking_tokens"), output)
    odd = (
        has_odd_count(reported, "cache_creation_input_tokens", "cache_read_input_tokens", main=_MAIN)
        or has_odd_count(split, "ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens")
        or has_odd_count(reported.get("output_tokens_details"), "thinking_tokens")
        or has_odd_count(reported.get("server_tool_use"), "web_search_requests", "web_fetch_requests")
    )
    return Usage(
        estimated=odd,
        input=count_at(reported, "input_tokens"),
        cache_read=count_at(reported, "cache_read_input_tokens"),
        cache_write=written - hour,
        cache_write_1h=hour,
        output=output - thought,
        reasoning=thought,
    )


def write_usage(usage: Usage) -> Record:
    """Return `usage`."""
    written = usage.cache_write + usage.cache_write_1h
    wire: Record = {
        "input_tokens": usage.prompt_tokens - usage.cache_read - written,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cache_read,
    }
    if written:
        wire["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        }
    if usage.reasoning:
        wire["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    fetched = (usage.tool_calls or {}).get("web_fetch", 0)
    if usage.web_searches or fetched:
        # Clients expect both numbers where there is one.
        wire["server_tool_use"] = {"web_search_requests": usage.web_searches, "web_fetch_requests": fetched}
    return wire
