"""Reads requests for pictures as strictly as OpenAI does: a field that is not named here is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.forms import read_parts
from apps.sandbox.refusal import SandboxRefusal

USUAL_SIZE = "1024x1024"
MAX_INPUTS = 16

_PNG, _JPEG, _WEBP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF"


class _Generation(Struct, forbid_unknown_fields=True):
    model: str
    prompt: Annotated[str, Meta(min_length=1, max_length=32_000)]
    n: Annotated[int, Meta(ge=1, le=10)] = 1
    size: Annotated[str, Meta(pattern=r"^(auto|[1-9]\d{1,3}x[1-9]\d{1,3})$")] = "auto"
    quality: Literal["low", "medium", "high", "auto"] = "auto"
    background: Literal["transparent", "opaque", "auto"] = "auto"
    moderation: Literal["low", "auto"] = "auto"
    output_format: Literal["png", "jpeg", "webp"] = "png"
    output_compression: Annotated[int, Meta(ge=0, le=100)] = 100
    user: str = ""
    stream: bool = False
    partial_images: Annotated[int, Meta(ge=0, le=3)] = 0


class _Edit(_Generation, forbid_unknown_fields=True):
    input_fidelity: Literal["high", "low"] = "low"


def glance(path: str, body: bytes) -> Glance | None:
    """Return nothing: no benchmark asks for pictures."""
    return None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as OpenAI does."""
    inputs = masks = 0
    try:
        if path.endswith("generations"):
            asked = msgspec.json.decode(body, type=_Generation)
        else:
            fields, inputs, masks = _read_form(body)
            asked = msgspec.convert(fields, _Edit, strict=False)
    except msgspec.ValidationError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    except msgspec.DecodeError as error:
        raise SandboxRefusal(400, "We could not parse the JSON body of your request.") from error
    kinds = (("image", inputs), ("mask", masks))
    return Conversation(
        model=asked.model,
        turns=(Turn("user", asked.prompt, attachments=tuple(kind for kind in kinds if kind[1])),),
        choices=asked.n,
        picture=USUAL_SIZE if asked.size == "auto" else asked.size,
        only_pictures=True,
        streamed=asked.stream,
        partial_images=asked.partial_images,
    )


def _read_form(body: bytes) -> tuple[dict[str, Any], int, int]:
    """Return a form's fields and how many pictures and masks it brings."""
    fields, files = read_parts(body)
    for name, _, data in files:
        if not data.startswith((_PNG, _JPEG, _WEBP)):
            raise SandboxRefusal(400, "Invalid image file or mode for image", param=name)
    pictures = [name for name, _, _ in files]
    masks = pictures.count("mask")
    inputs = len(pictures) - masks
    if not 1 <= inputs <= MAX_INPUTS or masks > 1 or not {"image", "image[]", "mask"}.issuperset(pictures):
        raise SandboxRefusal(400, f"Between 1 and {MAX_INPUTS} images are needed", param="image")
    return dict(fields), inputs, masks
