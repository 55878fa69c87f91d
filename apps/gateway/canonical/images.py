"""Canonical image options: the part of a chat that only an image request has."""

from __future__ import annotations

import msgspec


class ImageRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The form that images are to have; None is "not said" or "as the model likes".

    The prompt and the images to work from (as data URLs) are the chat's one message, how many to make is its `n`.
    """

    # Whether the message's images are to be changed, or there are none and a new one is to be made.
    edits: bool = False
    # A data URL: where this image is transparent, the first one of the message may change.
    mask: str | None = None
    # `WIDTHxHEIGHT` in pixels; a ratio (`16:9`) goes before it.
    size: str | None = None
    aspect_ratio: str | None = None
    # How large in a model's own word (`2K`), whatever the shape.
    resolution: str | None = None
    quality: str | None = None
    style: str | None = None
    background: str | None = None
    input_fidelity: str | None = None
    output_format: str | None = None
    # Percent; of JPEG and WebP.
    output_compression: int | None = None
    moderation: str | None = None
    # The number of partial images that a stream sends ahead of each image.
    partial_images: int | None = None
    # Whether the answer has URLs at which the gateway serves the images, instead of the images.
    as_links: bool = False
