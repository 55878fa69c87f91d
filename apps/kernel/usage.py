"""Token usage of an answer in disjoint classes, and how and where it was computed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

import msgspec

# Token counts; other counts are paid per unit, by the minute, or not at all.
TOKEN_COUNTS = (
    *("input", "cache_read", "cache_write", "cache_write_1h", "image_input", "audio_input"),
    *("output", "reasoning", "image_output", "audio_output", "cache_read_audio", "cache_read_image"),
)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Token counts by price, and other counts: `web_searches` are calls, `images` are generated images, `characters`
    are speech input, `audio_milliseconds` are recordings, `search_units` are queries over a provider's unit of
    documents.

    `cache_read_audio` and `cache_read_image` are parts of `cache_read`. `tool_calls` counts calls of the provider's own
    tools by name. `service_tier` and `region` are those that computed the answer, empty if the provider does not report
    them. If an answer took several model passes, `passes` lists them: they are paid instead of the counts here.
    `search_size` is the amount of web content searched, and `reported_search_cost` the provider's cost of it in USD.
    `reported_cost` is the cost in USD that the provider states for the whole answer, if it decides the price.
    `estimated` is true if the provider reported nothing and the gateway counted.
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
    # Stored under their first names.
    reported_search_cost: Decimal | None = msgspec.field(default=None, name="told_search_cost")
    reported_cost: Decimal | None = msgspec.field(default=None, name="told_cost")
    service_tier: str = ""
    region: str = ""
    passes: tuple[ModelPass, ...] = ()

    def __post_init__(self) -> None:
        """Replace negative counts by 0, whatever a provider reports, so that no cost is negative."""
        if min(msgspec.structs.astuple(self)[:_COUNT_OF_COUNTS]) < 0:
            for name in COUNTS:
                if getattr(self, name) < 0:
                    msgspec.structs.force_setattr(self, name, 0)

    @property
    def plain(self) -> bool:
        """Whether it has only uncached text input and text output."""
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
        """All input tokens, cached or not."""
        return (
            self.input + self.cache_read + self.cache_write + self.cache_write_1h + self.image_input + self.audio_input
        )

    @property
    def completion_tokens(self) -> int:
        """All output tokens, including reasoning."""
        return self.output + self.reasoning + self.image_output + self.audio_output

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        return self.prompt_tokens + self.completion_tokens


class ModelPass(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One pass of an answer: `model` is empty for the requested model, else the provider's name of another."""

    model: str = ""
    usage: Usage


# The count fields, which come first.
COUNTS = Usage.__struct_fields__[: Usage.__struct_fields__.index("estimated")]
_COUNT_OF_COUNTS = len(COUNTS)


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of several answers' usage; it is estimated if one of them is."""
    several = list(usages)
    search_costs = [usage.reported_search_cost for usage in several if usage.reported_search_cost is not None]
    costs = [usage.reported_cost for usage in several if usage.reported_cost is not None]
    calls: Counter[str] = Counter()
    for usage in several:
        calls.update(usage.tool_calls or {})
    return Usage(
        **{name: sum(getattr(usage, name) for usage in several) for name in COUNTS},
        estimated=any(usage.estimated for usage in several),
        tool_calls=dict(calls) or None,
        search_size=next((usage.search_size for usage in several if usage.search_size), ""),
        reported_search_cost=sum(search_costs, Decimal(0)) if search_costs else None,
        reported_cost=sum(costs, Decimal(0)) if costs and len(costs) == len(several) else None,
        service_tier=next((usage.service_tier for usage in several if usage.service_tier), ""),
        region=next((usage.region for usage in several if usage.region), ""),
        passes=tuple(one for usage in several for one in usage.passes),
    )
