"""Token usage of an answer, in disjoint classes: no token is counted in two of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Counts of tokens by what they are paid as, and of what is not paid by the token: `web_searches` are calls,
    `images` are pictures made, `characters` are read aloud, `audio_milliseconds` are listened to, `search_units` are
    queries over a provider's measure of documents.

    `estimated` is true when the provider reported nothing and the gateway counted for itself.
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
    estimated: bool = False

    def __post_init__(self) -> None:
        """Count what cannot be as nothing: whatever a provider says, no class is below 0, and so is no bill."""
        if min(msgspec.structs.astuple(self)) < 0:
            for name in self.__struct_fields__:
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


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return what several answers used together; it is estimated where one of them is."""
    counts = [msgspec.structs.asdict(usage) for usage in usages]
    names = [name for name in Usage.__struct_fields__ if name != "estimated"]
    return Usage(
        **{name: sum(count[name] for count in counts) for name in names},
        estimated=any(count["estimated"] for count in counts),
    )
