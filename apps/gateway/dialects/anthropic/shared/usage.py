"""Anthropic Messages, both sides: token usage, read into disjoint classes and written for clients.

Anthropic's `input_tokens` leave out what was read from or written to the cache. Nonsense is tolerated: every class is
at least 0. Must never know a price.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.service_tier import FAST, USUAL
from apps.kernel.usage import ModelPass, Usage, total_usage

Record = dict[str, Any]

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
# No answer has a billion tokens; a count beyond is a provider's bug.
_MOST = 10**9
# Passes over models that a bill keeps one by one; of more than these, those over one model are added up.
MAX_PASSES = 100
_SPEEDS = {"fast": FAST, "standard": USUAL}


def read_usage(reported: Record) -> Usage | None:
    """Return the counts, or None when none are reported: a prompt has at least one token.

    The 5-minute and 1-hour parts of what was cached may fall short of the total: the rest counts as 5-minute.
    """
    usage = _tokens(reported)
    calls = reported.get("server_tool_use")
    fetched = _count(calls, "web_fetch_requests")
    usage = replace(
        usage,
        web_searches=_count(calls, "web_search_requests"),
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
    hour = _count(split, "ephemeral_1h_input_tokens")
    written = max(_count(reported, "cache_creation_input_tokens"), hour + _count(split, "ephemeral_5m_input_tokens"))
    output = _count(reported, "output_tokens")
    thought = min(_count(reported.get("output_tokens_details"), "thinking_tokens"), output)
    return Usage(
        input=_count(reported, "input_tokens"),
        cache_read=_count(reported, "cache_read_input_tokens"),
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


def _count(record: Any, name: str) -> int:
    value = record.get(name) if isinstance(record, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return int(value)
    return 0
