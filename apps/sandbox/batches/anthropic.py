"""Anthropic's Message Batches API: `/v1/messages/batches`."""
# alone: one provider's API; the folder's `__init__` lists all of them

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from apps.sandbox.batches.jobs import BatchStore, Job, encode, spoilt
from apps.sandbox.http_framing import SandboxRequest

PATH = re.compile(r"/v1/messages/batches(?:/([\w-]+))?(?:/(results|cancel))?")
_PREFIX = "msgbatch_"


def reply_to(store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
    """Return the body of an answer, None for what there is not. Raises SandboxRefusal."""
    match request.method, identifier, verb:
        case "POST", None, None:
            asked = msgspec.json.decode(request.body)["requests"]
            answers = [(one["custom_id"], store.answer("/v1/messages", encode(one["params"]))) for one in asked]
            return encode(_job_object(store.make(_PREFIX, answers, {})))
        case "GET", None, None:
            listed = [_job_object(job) for job in store.listed(_PREFIX)]
            return encode({"data": listed, "has_more": False, "first_id": None, "last_id": None})
        case "GET", str(), None:
            return encode(_job_object(store.job(identifier)))
        case "GET", str(), "results":
            return b"".join(_results(store.job(identifier)))
        case "POST", str(), "cancel":
            return encode(_job_object(store.cancel(identifier)))
        case "DELETE", str(), None:
            store.delete_job(identifier)
            return encode({"id": identifier, "type": "message_batch_deleted"})
    return None


def _results(job: Job) -> list[bytes]:
    lines = []
    for custom_id, answer in job.lines:
        if answer.script == "missing":
            continue
        result: dict[str, Any] = {"type": "canceled" if job.cancelled else "expired"}
        if job.is_answered(answer):
            good = answer.status < 400
            kind, name = ("succeeded", "message") if good else ("errored", "error")
            result = {"type": kind, name: msgspec.Raw(answer.body)}
        lines += spoilt(encode({"custom_id": custom_id, "result": result}), custom_id, answer.script)
    return lines


def _job_object(job: Job) -> dict[str, Any]:
    made = datetime.fromtimestamp(job.made, UTC)
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    counts["succeeded" if job.ended else "processing"] = len(job.lines)
    return {
        "id": job.id,
        "type": "message_batch",
        "processing_status": "ended" if job.ended else "in_progress",
        "request_counts": counts,
        "created_at": made.isoformat(),
        "expires_at": (made + timedelta(days=1)).isoformat(),
        "results_url": f"/v1/messages/batches/{job.id}/results" if job.ended else None,
    }
