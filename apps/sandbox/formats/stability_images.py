"""Stability AI's images: `POST /v2beta/stable-image/generate/…`, a form of fields and at most one image.

Every model of theirs is the sandbox's `painter`. Fields are read as strictly as their description has them.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.formats.openai_chat import find_token
from apps.sandbox.generated_media import size_of
from apps.sandbox.http_framing import read_parts
from apps.sandbox.scenario import SandboxRefusal, Scenario


class _Asked(Struct, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(min_length=1, max_length=10_000)]
    model: str = ""
    mode: Literal["text-to-image", "image-to-image"] = "text-to-image"
    strength: Annotated[float, Meta(ge=0, le=1)] | None = None
    aspect_ratio: Literal["16:9", "1:1", "21:9", "2:3", "3:2", "4:5", "5:4", "9:16", "9:21"] | None = None
    seed: Annotated[int, Meta(ge=0, le=4_294_967_294)] = 0
    output_format: Literal["png", "jpeg", "webp"] = "png"


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in their manner."""
    fields, files = read_parts(body)
    try:
        asked = msgspec.convert(dict(fields), _Asked, strict=False)
    except msgspec.ValidationError as error:
        raise SandboxRefusal(400, str(error)) from error
    of_sd3, edits = path.endswith("sd3"), [name for name, _, _ in files] == ["image"]
    is_changed = asked.mode == "image-to-image" if of_sd3 else edits
    if bool(files) != edits or edits != is_changed or edits != (asked.strength is not None):
        raise SandboxRefusal(400, "image: an image and its strength are needed together")
    if edits and (path.endswith("core") or (of_sd3 and asked.aspect_ratio)):
        raise SandboxRefusal(400, "aspect_ratio: only for text-to-image")
    return Conversation(
        model="painter",
        turns=(Turn("user", asked.prompt, attachments=(("image", 1),) if edits else ()),),
        picture=size_of(asked.aspect_ratio) or "64x64",
        only_pictures=True,
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: one picture."""
    pictures = [picture for choice in answer.choices for picture in choice.pictures]
    reply = {"image": b64encode(pictures[0]).decode(), "finish_reason": "SUCCESS", "seed": 1} if pictures else {}
    return msgspec.json.encode(reply)


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"id": "r", "name": refusal.code or "bad_request", "errors": [refusal.message]})


FORMATS = (
    SpecialistFormat(
        "/v2beta/stable-image/generate/(sd3|core|ultra)", find_token, read_request, write_reply, write_error
    ),
)
