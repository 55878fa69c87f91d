"""Black Forest Labs' jobs: their status and image. Nothing is stored: a job's id contains everything.

`formats/black_forest_labs.py` makes the ids.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from apps.sandbox.generated_media import paint

POLL_PATH = "/v1/get_result"
PICTURE_PATH = "/results/sample.png"
FOREIGN = "https://images.example"
"""A host that no one owns."""


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
