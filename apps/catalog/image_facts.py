"""Image facts of a model: what a data file says of the images that it makes. Pure.

Knows the keys and what they may hold. Must never know a wire format; docs/adding-a-provider.md describes each key.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

ImageOption = Literal[
    "any_size",
    "background",
    "input_fidelity",
    "mask",
    "model",
    "moderation",
    "output_compression",
    "resolution",
    "response_format",
    "seed",
    "style",
    "user",
]
Size = Annotated[str, Meta(pattern=r"^\d{2,5}x\d{2,5}$")]
Ratio = Annotated[str, Meta(pattern=r"^\d{1,2}(\.\d)?:\d{1,2}(\.\d)?$")]
Word = Annotated[str, Meta(min_length=1, max_length=40)]


class Images(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a model is asked for pictures, and what can be asked of them; what is not said it cannot do."""

    dialect: Literal["openai", "chat", "stability", "dashscope"]
    path: Annotated[str, Meta(pattern=r"^[a-z0-9/_-]{1,80}$")] | UnsetType = UNSET
    most: Annotated[int, Meta(ge=1, le=10)] | UnsetType = UNSET
    inputs: Annotated[int, Meta(ge=0, le=16)] | UnsetType = UNSET
    takes: list[ImageOption] | UnsetType = UNSET
    sizes: list[Size] | UnsetType = UNSET
    aspect_ratios: list[Ratio] | UnsetType = UNSET
    qualities: list[Word] | UnsetType = UNSET
    formats: list[Literal["png", "jpeg", "webp"]] | UnsetType = UNSET
