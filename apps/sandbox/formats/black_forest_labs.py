"""Black Forest Labs' images: `POST /v1/flux-…` takes a job, which `apps/sandbox/flux_jobs.py` tells of.

Every model of theirs is the sandbox's `painter`. Fields are read as strictly as their description has them.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox import flux_jobs
from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.generated_media import size_of
from apps.sandbox.scenario import SandboxRefusal, Scenario

_Side = Annotated[int, Meta(ge=256, le=1440, multiple_of=32)]


class _Job(Struct, forbid_unknown_fields=True):
    prompt: str
    width: _Side = 1024
    height: _Side = 768
    aspect_ratio: Annotated[str, Meta(pattern=r"^\d{1,2}:\d{1,2}$")] | None = None
    seed: int | None = None
    output_format: Literal["jpeg", "png"] | None = None
    input_image: str | None = None
    input_image_2: str | None = None
    input_image_3: str | None = None
    input_image_4: str | None = None


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents."""
    return headers.get("x-key")


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422) in their manner."""
    try:
        asked = msgspec.json.decode(body, type=_Job)
        pictures = [asked.input_image, asked.input_image_2, asked.input_image_3, asked.input_image_4]
        inputs = [b64decode(one, validate=True) for one in pictures if one is not None]
    except (msgspec.MsgspecError, Error) as error:
        raise SandboxRefusal(422, str(error)) from error
    return Conversation(
        model="painter",
        turns=(Turn("user", asked.prompt, attachments=(("image", len(inputs)),) if inputs else ()),),
        picture=size_of(asked.aspect_ratio) or f"{asked.width}x{asked.height}",
        only_pictures=True,
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a job's id, and where it is asked after."""
    job = flux_jobs.FluxJob(
        answer.id, answer.picture, scenario.tag or answer.model, scenario.pending, scenario.job, scenario.elsewhere
    )
    identifier = flux_jobs.job_id(job)
    host = flux_jobs.FOREIGN if scenario.elsewhere == "poll" else answer.origin
    return msgspec.json.encode({"id": identifier, "polling_url": f"{host}{flux_jobs.POLL_PATH}?id={identifier}"})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error: fields as a list, else words."""
    detail = [{"loc": ["body"], "msg": refusal.message, "type": "value_error"}]
    return msgspec.json.encode({"detail": detail if refusal.status == 422 else refusal.message})


FORMAT = SpecialistFormat(r"/v1/flux-[\w.-]+", find_token, read_request, write_reply, write_error)
