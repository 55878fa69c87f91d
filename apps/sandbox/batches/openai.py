"""OpenAI's batch API, which is Groq's too: `/v1/files` and `/v1/batches`. Mistral's files are the same."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import msgspec

from apps.sandbox.batches.jobs import BatchStore, Job, encode, lines_by_custom_id, parts_in
from apps.sandbox.http_framing import SandboxRequest
from apps.sandbox.scenario import SandboxRefusal

PATH = re.compile(r"/v1/(files|batches)(?:/([\w-]+))?(?:/(content|cancel))?")
_PREFIX = "batch_"


def reply_to(
    store: BatchStore, request: SandboxRequest, kind: str, identifier: str | None, verb: str | None
) -> bytes | None:
    """Return the body of an answer, None for what there is not. Raises SandboxRefusal."""
    return (_file if kind == "files" else _batch)(store, request, identifier, verb)


def _file(store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
    match request.method, verb:
        case "POST", None if identifier is None:
            made, content = f"file-{uuid4().hex}", _file_in(request)
            store.keep_file(made, content)
            return encode({"id": made, "object": "file", "bytes": len(content), "purpose": "batch"})
        case "GET", "content":
            return store.file(identifier)
        case "DELETE", None:
            store.delete_file(identifier)
            return encode({"id": identifier, "object": "file", "deleted": True})
    return None


def _batch(store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
    match request.method, identifier, verb:
        case "POST", None, None:
            asked = msgspec.json.decode(request.body)
            lines = store.lines_of(asked["input_file_id"])
            if len({line["body"]["model"] for line in lines}) > 1:
                raise SandboxRefusal(400, "Every line must ask for the same model.")
            answers = [(line["custom_id"], store.answer(line["url"], encode(line["body"]))) for line in lines]
            return encode(_job_object(store, store.make(_PREFIX, answers, asked)))
        case "GET", None, None:
            listed = [_job_object(store, job) for job in store.listed(_PREFIX)]
            return encode({"object": "list", "data": listed, "has_more": False})
        case "GET", str(), None:
            return encode(_job_object(store, store.job(identifier)))
        case "POST", str(), "cancel":
            return encode(_job_object(store, store.cancel(identifier)))
    return None


def _job_object(store: BatchStore, job: Job) -> dict[str, Any]:
    status = "failed" if job.is_refused else "cancelled" if job.cancelled else "completed"
    names = {kind: f"file-{job.id}-{kind}" for kind in ("output", "error")}
    if job.ended and status != "failed":
        for kind, name in names.items():
            store.keep_file(name, b"".join(lines_by_custom_id(job, good=kind == "output")))
    return {
        "id": job.id,
        "object": "batch",
        "endpoint": job.asked["endpoint"],
        "input_file_id": job.asked["input_file_id"],
        "metadata": job.asked.get("metadata"),
        "completion_window": "24h",
        "status": status if job.ended else "in_progress",
        "created_at": int(job.made),
        **{f"{kind}_file_id": name for kind, name in names.items() if store.has_file(name)},
    }


def _file_in(request: SandboxRequest) -> bytes:
    """Return the file of a form. Raises SandboxRefusal."""
    for head, content in parts_in(request):
        if b'name="file"' in head:
            return content
    raise SandboxRefusal(400, "There is no file.", param="file")
