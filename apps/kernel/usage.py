"""Token usage of an answer, in disjoint classes, and how and where the answer was computed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

import msgspec

# Counts of tokens; the others are paid by the piece, by the minute, or not at all.
TOKEN_COUNTS = (
    *("input", "cache_read", "cache_write", "cache_write_1h", "image_input", "audio_input"),
    *("output", "reasoning", "image_output", "audio_output", "cache_read_audio", "cache_read_image"),
)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Counts of tokens by what they are paid as, and of what is not paid by the token: `web_searches` are calls,
    `images` are pictures made, `characters` are read aloud, `audio_milliseconds` are listened to, `search_units` are
    queries over a provider's measure of documents.

    `cache_read_audio` and `cache_read_image` are parts of `cache_read` that are told apart. `tool_calls` counts, by
    their names, calls of tools that the provider ran. `service_tier` and `region` say how and where the answer was
    computed, empty where the provider does not tell. Where an answer took several passes over models, `passes` has
    each of them: they are paid instead of the tokens counted here. `search_size` says how much of the web was searched,
    and `told_search_cost` what the provider says that it takes for that, in USD. `told_cost` is what it says that the
    whole answer costs, in USD, where its word decides. `estimated` is true when the provider reported nothing and the
    gateway counted for itself.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    image_input: int = 0
    audio_input: int = 0
    output: int = 0
    reasoning: int = 0
    image_output: int = 0
    audio_output: int = 0
    web_searches: int = 0
    images: int = 0
    characters: int = 0
    audio_milliseconds: int = 0
    search_units: int = 0
    cache_read_audio: int = 0
    cache_read_image: int = 0
    estimated: bool = False
    tool_calls: dict[str, int] | None = None
    search_size: str = ""
    told_search_cost: Decimal | None = None
    told_cost: Decimal | None = None
    service_tier: str = ""
    region: str = ""
    passes: tuple[ModelPass, ...] = ()

    def __post_init__(self) -> None:
        """Count what cannot be as nothing: whatever a provider says, no class is below 0, and so is no bill."""
        if min(msgspec.structs.astuple(self)[:_COUNT_OF_COUNTS]) < 0:
            for name in COUNTS:
                if getattr(self, name) < 0:
                    msgspec.structs.force_setattr(self, name, 0)

    @property
    def plain(self) -> bool:
        """Whether there is nothing but text that was read, none of it from a cache, and written."""
        return not (
            self.cache_read
            or self.cache_write
            or self.cache_write_1h
            or self.image_input
            or self.audio_input
            or self.image_output
            or self.audio_output
            or self.web_searches
            or self.images
            or self.characters
            or self.audio_milliseconds
            or self.search_units
            or self.tool_calls
            or self.passes
        )

    @property
    def prompt_tokens(self) -> int:
        """Everything the model read, cached or not."""
        return (
            self.input + self.cache_read + self.cache_write + self.cache_write_1h + self.image_input + self.audio_input
        )

    @property
    def completion_tokens(self) -> int:
        """Everything the model wrote, reasoning included."""
        return self.output + self.reasoning + self.image_output + self.audio_output

    @property
    def total_tokens(self) -> int:
        """Read and written together."""
        return self.prompt_tokens + self.completion_tokens


class ModelPass(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One pass of an answer over a model: `model` is empty for the one that was asked, else the provider's name."""

    model: str = ""
    usage: Usage


# The fields that are counts: they come first.
COUNTS = Usage.__struct_fields__[: Usage.__struct_fields__.index("estimated")]
_COUNT_OF_COUNTS = len(COUNTS)


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return what several answers used together; it is estimated where one of them is."""
    several = list(usages)
    told = [usage.told_search_cost for usage in several if usage.told_search_cost is not None]
    costs = [usage.told_cost for usage in several if usage.told_cost is not None]
    calls: Counter[str] = Counter()
    for usage in several:
        calls.update(usage.tool_calls or {})
    return Usage(
        **{name: sum(getattr(usage, name) for usage in several) for name in COUNTS},
        estimated=any(usage.estimated for usage in several),
        tool_calls=dict(calls) or None,
        search_size=next((usage.search_size for usage in several if usage.search_size), ""),
        told_search_cost=sum(told, Decimal(0)) if told else None,
        told_cost=sum(costs, Decimal(0)) if costs and len(costs) == len(several) else None,
        service_tier=next((usage.service_tier for usage in several if usage.service_tier), ""),
        region=next((usage.region for usage in several if usage.region), ""),
        passes=tuple(one for usage in several for one in usage.passes),
    )
