"""Google generateContent: token usage, read into disjoint classes and written from them.

The prompt's count includes cached tokens; neither thinking nor the prompts of Google's own tools are in the counts
beside them. Nonsense is tolerated: every class is at least 0.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import Summary
from apps.gateway.canonical.service_tier import served_tier
from apps.gateway.dialects.reading.exact_numbers import exact_number
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.dialects.reading.reported_counts import has_odd_count, read_count
from apps.kernel.usage import Usage

# The counts that make up the total.
_PARTS = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
_MAIN, _BESIDE = _PARTS[:2], (*_PARTS[2:], "cachedContentTokenCount")
_DETAILS = ("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails")


def read_usage(reported: Any, searches: int) -> Usage | None:
    """Return the counts, or None when none are reported; `searches` are the web searches seen so far."""
    if not isinstance(reported, dict):
        return None
    prompt, written = (
        read_count(reported.get("promptTokenCount")),
        read_count(reported.get("candidatesTokenCount")),
    )
    thought, tools = (
        read_count(reported.get("thoughtsTokenCount")),
        read_count(reported.get("toolUsePromptTokenCount")),
    )
    if not prompt + written + thought + tools:
        return None
    cached = min(read_count(reported.get("cachedContentTokenCount")), prompt)
    read, stored = _by_kind(reported, "promptTokensDetails"), _by_kind(reported, "cacheTokensDetails")
    fresh = prompt - cached
    audio = min(max(read.get("AUDIO", 0) - stored.get("AUDIO", 0), 0), fresh)
    images = min(max(read.get("IMAGE", 0) - stored.get("IMAGE", 0), 0), fresh - audio)
    made = _by_kind(reported, "candidatesTokensDetails")
    audio_out = min(made.get("AUDIO", 0), written)
    images_out = min(made.get("IMAGE", 0), written - audio_out)
    return Usage(
        input=fresh - audio - images + tools,
        cache_read=cached,
        cache_read_audio=min(stored.get("AUDIO", 0), cached),
        cache_read_image=min(stored.get("IMAGE", 0), cached - min(stored.get("AUDIO", 0), cached)),
        audio_input=audio,
        image_input=images,
        output=written - audio_out - images_out,
        reasoning=thought,
        audio_output=audio_out,
        image_output=images_out,
        web_searches=searches,
        estimated=has_odd_count(reported, *_BESIDE, main=_MAIN) or _has_odd_details(reported),
        service_tier=_tier(reported),
    )


def _has_odd_details(reported: Record) -> bool:
    for name in _DETAILS:
        details = reported.get(name)
        if any(has_odd_count(detail, "tokenCount") for detail in (details if isinstance(details, list) else ())):
            return True
    return False


def _tier(reported: Any) -> str:
    """Return the tier of service: AI Studio names it, Vertex AI calls it a kind of traffic."""
    traffic = reported.get("serviceTier") or reported.get("trafficType")
    return served_tier(traffic.lower().removeprefix("on_demand_")) if isinstance(traffic, str) else ""


def adds_up(reported: Any) -> bool:
    """Return whether counts hold a total that is the sum of the others."""
    if not isinstance(reported, dict) or not (total := read_count(reported.get("totalTokenCount"))):
        return False
    return total == sum(read_count(reported.get(name)) for name in _PARTS)


def write_usage(summary: Summary) -> Record:
    """Return `usageMetadata`: the prompts of a provider's own tools are part of the prompt. The cost in USD is beside
    the counts, where Google's clients skip it."""
    usage = summary.usage
    prompt, written, thought = usage.prompt_tokens, usage.completion_tokens - usage.reasoning, usage.reasoning
    read = {"AUDIO": usage.audio_input, "IMAGE": usage.image_input}
    made = {"AUDIO": usage.audio_output, "IMAGE": usage.image_output}
    wire: Record = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": written,
        "totalTokenCount": prompt + written + thought,
        "promptTokensDetails": _details(prompt, read),
    }
    if usage.cache_read:
        wire["cachedContentTokenCount"] = usage.cache_read
    if any(made.values()):
        wire["candidatesTokensDetails"] = _details(written, made)
    if thought:
        wire["thoughtsTokenCount"] = thought
    return {**wire, "costUsd": {part: exact_number(amount) for part, amount in summary.cost.items()}}


def _details(count: int, others: dict[str, int]) -> list[Record]:
    """Return of which kinds tokens are: text where nothing else is said."""
    kinds = {"TEXT": count - sum(others.values()), **others}
    return [{"modality": kind, "tokenCount": number} for kind, number in kinds.items() if number > 0]


def _by_kind(reported: Record, name: str) -> dict[str, int]:
    details = reported.get(name)
    counts: dict[str, int] = {}
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(kind := detail.get("modality"), str):
            counts[kind] = counts.get(kind, 0) + read_count(detail.get("tokenCount"))
    return counts
