"""What a model can be asked of pictures, and what a request needs of one: the facts under `images` in the data files.

Knows the facts and compares. Must never know who states them, nor a wire format.
docs/adding-a-provider.md explains each to those who write data files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from apps.gateway.canonical.chat import Chat, Image
from apps.gateway.canonical.images import Drawing

# Sizes of a free choice: multiples of so many pixels, the longer side this long, and no longer than thrice the other.
_STEP, _LONGER_SIDE, _SLIMMEST = 16, 1536, 3
_TWO_NUMBERS = re.compile(r"(\d{1,5}(?:\.\d{1,2})?)[x:](\d{1,5}(?:\.\d{1,2})?)")


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes. Nothing is taken that is not stated."""

    # The wire format of pictures; `chat` for a model that draws when it is chatted to.
    dialect: str
    # Where a format has a path for each model.
    path: str = ""
    # How many pictures it makes at a time, and how many it works from: 0, it only makes new ones.
    most: int = 1
    inputs: int = 0
    # Options beyond the prompt: `mask`, `background`, `style`, `input_fidelity`, `output_compression`, `moderation`,
    # `resolution`, `seed`, `user`; `any_size`, sizes of a free choice; `response_format`, `model`: must be said there.
    takes: frozenset[str] = frozenset()
    sizes: tuple[str, ...] = ()
    aspect_ratios: tuple[str, ...] = ()
    qualities: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


class Need(NamedTuple):
    """Something a request needs: its name for people, the client's field, and whether a model has it."""

    name: str
    param: str
    can: Callable[[Abilities], bool]


class Shape(NamedTuple):
    """How a model is told the shape: by `size` or by `aspect_ratio`; `exact` when the size asked for is what comes."""

    field: str
    value: str
    exact: bool


def abilities_of(facts: Mapping[str, Any]) -> Abilities | None:
    """Return what an offer's facts say of pictures, None where they say nothing: it makes none."""
    stated = facts.get("images")
    return None if stated is None else msgspec.convert(stated, Abilities)


def needs_of(chat: Chat, drawing: Drawing) -> list[Need]:
    """Return what a model must be able to do for a request; mere wishes are not among it."""
    needs: list[Need] = []
    inputs = sum(isinstance(part, Image) for message in chat.messages for part in message.parts)
    if drawing.edits:
        needs.append(Need("image editing", "images", lambda model: model.inputs > 0))
        needs.append(Need(f"{inputs} images to work from", "images", lambda model: model.inputs >= inputs))
    if (count := chat.n or 1) > 1:
        needs.append(Need(f"{count} images at a time", "n", lambda model: model.most >= count))
    if drawing.mask is not None:
        needs.append(Need("a mask", "mask", lambda model: "mask" in model.takes))
    if (quality := drawing.quality) not in (None, "standard"):
        needs.append(Need(f"quality {quality}", "quality", lambda model: quality in model.qualities))
    if drawing.background == "transparent":
        needs.append(Need("a transparent background", "background", lambda model: "background" in model.takes))
    if (form := drawing.output_format) is not None:
        needs.append(Need(f"output format {form}", "output_format", lambda model: form in model.formats))
    if drawing.resolution is not None:
        needs.append(
            Need(
                f"image size {drawing.resolution}",
                "image_config.image_size",
                lambda model: "resolution" in model.takes,
            )
        )
    if drawing.aspect_ratio is not None:
        ratio = drawing.aspect_ratio
        needs.append(Need(f"aspect ratio {ratio}", "aspect_ratio", lambda model: shape_of(drawing, model) is not None))
    elif drawing.size is not None:
        needs.append(Need(f"size {drawing.size}", "size", lambda model: shape_of(drawing, model) is not None))
    return needs


def shape_of(drawing: Drawing, model: Abilities) -> Shape | None:
    """Return how to tell a model the shape that is asked for, None when it has no such shape, or none is asked for."""
    if drawing.aspect_ratio is not None:
        return _shape_by_ratio(drawing.aspect_ratio, model)
    if drawing.size is None:
        return None
    if not model.aspect_ratios:
        taken = drawing.size in model.sizes or "any_size" in model.takes
        return Shape("size", drawing.size, exact=True) if taken else None
    # It is told a ratio; sizes are what its ratios come out as.
    if drawing.size in model.sizes:
        return _nearest_ratio(drawing.size, model)
    ratio = ratio_of(drawing.size)
    named = next((one for one in model.aspect_ratios if ratio_of(one) == ratio), None)
    return None if named is None else Shape("aspect_ratio", named, exact=False)


def ratio_of(text: str) -> Fraction | None:
    """Return width by height of `1536x1024` or `3:2`, None when it is neither."""
    found = _TWO_NUMBERS.fullmatch(text)
    if found is None or not (width := Fraction(found[1])) or not (height := Fraction(found[2])):
        return None
    return width / height


def _shape_by_ratio(text: str, model: Abilities) -> Shape | None:
    ratio = ratio_of(text)
    if named := next((one for one in model.aspect_ratios if ratio_of(one) == ratio), None):
        return Shape("aspect_ratio", named, exact=True)
    if model.aspect_ratios or ratio is None:
        return None
    if size := next((one for one in model.sizes if ratio_of(one) == ratio), None):
        return Shape("size", size, exact=True)
    if "any_size" in model.takes and (size := _size_of(ratio)):
        return Shape("size", size, exact=True)
    return None


def _nearest_ratio(size: str, model: Abilities) -> Shape:
    """Return the ratio that comes out as a size: the two differ by a few pixels (832x1248 is 2:3, 864x1184 is 3:4)."""
    wanted = ratio_of(size) or Fraction(1)
    ratios = [(one, ratio) for one in model.aspect_ratios if (ratio := ratio_of(one)) is not None]
    return Shape("aspect_ratio", min(ratios, key=lambda pair: abs(pair[1] / wanted - 1))[0], exact=True)


def _size_of(ratio: Fraction) -> str | None:
    """Return the largest size of exactly this ratio within the bounds; None when there is none."""
    if not Fraction(1, _SLIMMEST) <= ratio <= _SLIMMEST:
        return None
    unit = _STEP * max(ratio.numerator, ratio.denominator)
    times = _LONGER_SIDE // unit
    return f"{ratio.numerator * _STEP * times}x{ratio.denominator * _STEP * times}" if times else None
