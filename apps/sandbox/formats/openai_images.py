"""OpenAI's images: `POST /v1/images/generations` in JSON, `/v1/images/edits` as a form; plain, and as a stream."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, SandboxUsage, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.openai_chat import CREATED, find_token, write_error, write_error_event, write_models
from apps.sandbox.generated_media import paint
from apps.sandbox.http_framing import read_parts
from apps.sandbox.scenario import SandboxRefusal, Scenario

# Some members of the format are those of chat completions.
__all__ = [
    "MODELS_PATH",
    "PATH",
    "STREAM_TYPE",
    "find_token",
    "glance",
    "read_request",
    "write_error",
    "write_error_event",
    "write_events",
    "write_models",
    "write_reply",
]

PATH = re.compile("/v1/images/(generations|edits)")
MODELS_PATH = "/v1/models"
STREAM_TYPE = "text/event-stream"


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


TOKENS_OF_PARTIAL_IMAGE = 100


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a picture for each choice, with the words that it is of."""
    data = [
        {"b64_json": b64encode(picture).decode(), "revised_prompt": choice.text}
        for choice in answer.choices
        for picture in choice.pictures
    ]
    reply: dict[str, Any] = {"created": CREATED, "data": data}
    if data:
        reply |= {"background": "opaque", "output_format": "png", "quality": "medium", "size": answer.picture}
    if answer.usage:
        reply["usage"] = _usage(answer.usage)
    return msgspec.json.encode(reply | ({"x_sandbox": "an unknown field"} if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return an event for each picture, its unfinished ones ahead of it. Those cost 100 tokens each."""
    about = {
        "created_at": CREATED,
        "background": "opaque",
        "output_format": "png",
        "quality": "medium",
        "size": answer.picture,
    }
    events: list[bytes] = []
    pictures = [picture for choice in answer.choices for picture in choice.pictures]
    for place, picture in enumerate(pictures):
        for index in range(answer.partial_images):
            unfinished = paint("8x8", f"{answer.id}/{place}/{index}")
            fields = {"b64_json": b64encode(unfinished).decode(), "partial_image_index": index, **about}
            events.append(_event("image_generation.partial_image", fields))
        whole: dict[str, Any] = {"b64_json": b64encode(picture).decode(), **about}
        if answer.usage and place == len(pictures) - 1:
            more = TOKENS_OF_PARTIAL_IMAGE * answer.partial_images * len(pictures)
            whole["usage"] = _usage(replace(answer.usage, completion=answer.usage.completion + more))
        events.append(_event("image_generation.completed", whole))
    return events


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"text_tokens": usage.prompt - usage.attached, "image_tokens": usage.attached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"text_tokens": 0, "image_tokens": usage.completion},
        "total_tokens": usage.prompt + usage.completion,
    }
