"""Mistral's batch API: `/v1/batch/jobs`; its files are at OpenAI's path."""
# alone: one provider's API; the folder's `__init__` lists all of them

from __future__ import annotations

import re
from typing import Any

import msgspec

from apps.sandbox.batches.jobs import BatchStore, Job, encode, lines_by_custom_id
from apps.sandbox.http_framing import SandboxRequest

PATH = re.compile(r"/v1/batch/jobs(?:/([\w-]+))?(?:/(cancel))?")
_PREFIX = "mistral-"


def reply_to(store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
    """Return the body of an answer, None for what there is not. Raises SandboxRefusal."""
    match request.method, identifier, verb:
        case "POST", None, None:
            asked = msgspec.json.decode(request.body)
            lines = [line for name in asked["input_files"] for line in store.lines_of(name)]
            bodies = [(line["custom_id"], line["body"] | {"model": asked["model"]}) for line in lines]
            answers = [(name, store.answer(asked["endpoint"], encode(body))) for name, body in bodies]
            return encode(_job_object(store, store.make(_PREFIX, answers, asked)))
        case "GET", None, None:
            first = 100 * int(request.query.get("page", "0"))
            jobs = store.listed(_PREFIX)
            listed = [_job_object(store, job) for job in jobs[first : first + 100]]
            return encode({"object": "list", "data": listed, "total": len(jobs)})
        case "GET", str(), None:
            return encode(_job_object(store, store.job(identifier)))
        case "POST", str(), "cancel":
            return encode(_job_object(store, store.cancel(identifier)))
    return None


def _job_object(store: BatchStore, job: Job) -> dict[str, Any]:
    status = "FAILED" if job.is_refused else "CANCELLED" if job.cancelled else "SUCCESS"
    names = {kind: f"file-{job.id}-{kind}" for kind in ("output", "error")}
    if job.ended and status != "FAILED":
        for kind, name in names.items():
            store.keep_file(name, b"".join(lines_by_custom_id(job, good=kind == "output")))
    return {
        "id": job.id,
        "object": "batch",
        "input_files": job.asked["input_files"],
        "endpoint": job.asked["endpoint"],
        "model": job.asked["model"],
        "metadata": job.asked.get("metadata"),
        "errors": [],
        "status": status if job.ended else "RUNNING",
        "created_at": int(job.made),
        "total_requests": len(job.lines),
        **{f"{kind}_file": name if store.has_file(name) else None for kind, name in names.items()},
    }
