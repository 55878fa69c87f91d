"""Providers of images alone: Black Forest Labs and Stability AI. Every model of theirs is the sandbox's `painter`.

Black Forest Labs: `POST /v1/flux-…` takes a job, which is asked after at the address that the answer names. Nothing is
stored of a job: its id contains everything. Stability AI: `POST /v2beta/stable-image/generate/…`, a form of fields and
at most one image. Fields are read as strictly as their descriptions have them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.formats.openai_chat import find_token as find_openai_token
from apps.sandbox.generated_media import paint, size_of
from apps.sandbox.http_framing import read_parts
from apps.sandbox.scenario import SandboxRefusal, Scenario

POLL_PATH = "/v1/get_result"
PICTURE_PATH = "/results/sample.png"
FOREIGN = "https://images.example"
"""A host that no one owns."""

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
    job = FluxJob(
        answer.id, answer.picture, scenario.tag or answer.model, scenario.pending, scenario.job, scenario.elsewhere
    )
    identifier = job_id(job)
    host = FOREIGN if scenario.elsewhere == "poll" else answer.origin
    return msgspec.json.encode({"id": identifier, "polling_url": f"{host}{POLL_PATH}?id={identifier}"})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error: fields as a list, else words."""
    detail = [{"loc": ["body"], "msg": refusal.message, "type": "value_error"}]
    return msgspec.json.encode({"detail": detail if refusal.status == 422 else refusal.message})


class FluxJob(Struct, frozen=True):
    """One job: its image, the number of polls until its end, and its outcome."""

    id: str
    size: str
    tag: str
    pending: int
    ends: str
    elsewhere: str | None


def job_id(job: FluxJob) -> str:
    """Return a job as its id."""
    return urlsafe_b64encode(msgspec.json.encode(job)).decode().rstrip("=")


def read_job(query: Mapping[str, str]) -> FluxJob | None:
    """Return the job that a query names."""
    name = query.get("id", "")
    try:
        return msgspec.json.decode(urlsafe_b64decode(name + "=" * (-len(name) % 4)), type=FluxJob)
    except (ValueError, msgspec.MsgspecError):
        return None


def status_of(job: FluxJob, look: int, origin: str) -> dict[str, Any]:
    """Return the answer to the `look`-th poll, counted from 1."""
    identifier = job_id(job)
    job_object: dict[str, Any] = {"id": identifier, "result": None, "progress": None, "details": None, "preview": None}
    if look <= job.pending:
        return job_object | {"status": "Pending", "progress": 0.5}
    if job.ends != "ready":
        words = job.ends.replace("-", " ").capitalize()
        details = {"Moderation Reasons": ["Derivative Works Filter"]} if "moderated" in job.ends else None
        return job_object | {"status": words.replace(" moderated", " Moderated"), "details": details}
    host = FOREIGN if job.elsewhere == "result" else origin
    return job_object | {"status": "Ready", "result": {"sample": f"{host}{PICTURE_PATH}?id={identifier}", "seed": 42}}


def picture_of(job: FluxJob) -> bytes:
    """Return the picture."""
    return paint(job.size, job.id)


_FLUX = (SpecialistFormat(r"/v1/flux-[\w.-]+", find_token, read_request, write_reply, write_error),)


class _StabilityRequest(Struct, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(min_length=1, max_length=10_000)]
    model: str = ""
    mode: Literal["text-to-image", "image-to-image"] = "text-to-image"
    strength: Annotated[float, Meta(ge=0, le=1)] | None = None
    aspect_ratio: Literal["16:9", "1:1", "21:9", "2:3", "3:2", "4:5", "5:4", "9:16", "9:21"] | None = None
    seed: Annotated[int, Meta(ge=0, le=4_294_967_294)] = 0
    output_format: Literal["png", "jpeg", "webp"] = "png"


def read_stability(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in their manner."""
    fields, files = read_parts(body)
    try:
        asked = msgspec.convert(dict(fields), _StabilityRequest, strict=False)
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


def write_stability(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: one picture."""
    pictures = [picture for choice in answer.choices for picture in choice.pictures]
    reply = {"image": b64encode(pictures[0]).decode(), "finish_reason": "SUCCESS", "seed": 1} if pictures else {}
    return msgspec.json.encode(reply)


def write_stability_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"id": "r", "name": refusal.code or "bad_request", "errors": [refusal.message]})


_STABILITY = (
    SpecialistFormat(
        "/v2beta/stable-image/generate/(sd3|core|ultra)",
        find_openai_token,
        read_stability,
        write_stability,
        write_stability_error,
    ),
)


FORMATS = (*_FLUX, *_STABILITY)
