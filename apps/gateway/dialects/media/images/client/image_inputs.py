"""OpenAI Images, client side: reads input images, URLs in JSON or files in a multipart form, into data URLs or https
URLs."""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from typing import Any

from apps.gateway.dialects.media.multipart_form import FormField
from apps.gateway.dialects.reading.fields import Malformed, record
from apps.gateway.dialects.reading.image_type import image_type_of
from apps.kernel.errors import InvalidRequest

MAX_INPUTS = 16
_DATA_URL = re.compile(r"data:image/[\w.+-]{1,40}(?:;[\w.+=-]{1,80}){0,4};base64,", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_IMAGES = ("image", "image[]", "file")
# Bytes of a field that is no file.
_MAX_TEXT_LENGTH = 1_000_000


def read_inputs(value: Any) -> list[str]:
    """Read `images`. Raises Malformed, or InvalidRequest in the specification's own words."""
    if value is None:
        raise Malformed("Required", "images")
    if not isinstance(value, list):
        raise Malformed("must be an array", "images")
    if not 1 <= len(value) <= MAX_INPUTS:
        raise Malformed(f"must hold 1 to {MAX_INPUTS} images", "images")
    return [_read_input(f"images[{place}]", item) for place, item in enumerate(value)]


def read_mask(value: Any) -> str:
    """Read `mask`, which is written like one of `images`."""
    return _read_input("mask", value)


def read_files(form: list[FormField]) -> tuple[list[str], str | None, dict[str, str]]:
    """Return the images of a form, its mask, and its other fields. Raises Malformed."""
    inputs: list[str] = []
    mask: str | None = None
    rest: dict[str, str] = {}
    for field in form:
        if field.name in _IMAGES:
            inputs.append(_read_file(field))
        elif field.name == "mask":
            if mask is not None:
                raise Malformed("must be given once", "mask")
            mask = _read_file(field)
        elif field.filename is not None:
            raise Malformed("must not be a file", field.name[:64])
        elif field.name in rest:
            raise Malformed("must be given once", field.name[:64])
        else:
            rest[field.name] = _text(field)
    if not inputs:
        raise Malformed("Required", "image")
    if len(inputs) > MAX_INPUTS:
        raise Malformed(f"must hold 1 to {MAX_INPUTS} images", "image")
    return inputs, mask, rest


def data_url_of(data: bytes) -> str | None:
    """Return an image as a data URL with the type that its bytes show; None for other bytes."""
    media_type = image_type_of(data)
    return None if media_type is None else f"data:{media_type};base64,{b64encode(data).decode()}"


def _read_input(place: str, item: Any) -> str:
    """Return an https URL as it is, and a data URL with the type that its bytes tell."""
    try:
        url = record(item).get("image_url")
    except Malformed as refusal:
        raise refusal.under(place) from None
    if url is None:
        raise Malformed("Required", f"{place}.image_url")
    if isinstance(url, str) and url[:8].lower() == "https://" and len(url) > len("https://"):
        return url
    head = _DATA_URL.match(url) if isinstance(url, str) else None
    if head is None:
        raise _not_an_image(place)
    text = _BLANKS.sub("", url[head.end() :])
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise _not_an_image(place) from None
    media_type = image_type_of(data)
    if media_type is None:
        raise InvalidRequest(
            f"{place}.image_url is invalid: it holds no PNG, JPEG, WebP or GIF image", param=f"{place}.image_url"
        )
    return f"data:{media_type};base64,{text}"


def _read_file(field: FormField) -> str:
    if field.filename is None:
        raise Malformed("must be a file", field.name)
    url = data_url_of(field.data)
    if url is None:
        raise Malformed("must be a PNG, JPEG, WebP or GIF image", field.name)
    return url


def _text(field: FormField) -> str:
    if len(field.data) > _MAX_TEXT_LENGTH:
        raise Malformed("is too long", field.name[:64])
    try:
        return field.data.decode()
    except UnicodeDecodeError:
        raise Malformed("must be UTF-8", field.name[:64]) from None


def _not_an_image(place: str) -> InvalidRequest:
    param = f"{place}.image_url"
    return InvalidRequest(f"{param} must be an https URL or a base64 data URL", param=param)
