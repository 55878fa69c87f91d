"""Google's batch API: files that are uploaded and downloaded, `…:batchGenerateContent`, `/v1beta/batches`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from apps.sandbox.batches.jobs import BatchStore, Job, encode, parts_in, spoilt
from apps.sandbox.http_framing import SandboxRequest
from apps.sandbox.scenario import SandboxRefusal

PATH = re.compile(
    r"(/upload)?/v1beta/(?:(files|batches)(?:/([\w-]+))?(?::(download|cancel))?|(models/[^/]+):batchGenerateContent)"
)
_PREFIX = "google-"
# Codes of gRPC, which errors of lines have, by the status that the request would have had.
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 429: 8, 500: 13, 503: 14, 504: 4}


def reply_to(
    store: BatchStore,
    request: SandboxRequest,
    upload: str | None,
    kind: str | None,
    identifier: str | None,
    verb: str | None,
    model: str | None,
) -> bytes | None:
    """Return the body of an answer, None for what there is not. Raises SandboxRefusal."""
    if model is not None:
        return encode(_make(store, request, model)) if request.method == "POST" else None
    if kind == "files":
        return _file(store, request, identifier, verb, is_upload=upload is not None)
    match request.method, identifier, verb:
        case "GET", None, None:
            return encode({"operations": [_job_object(store, job) for job in store.listed(_PREFIX)]})
        case "GET", str(), None:
            return encode(_job_object(store, store.job(identifier)))
        case "POST", str(), "cancel":
            store.cancel(identifier)
            return b"{}"
        case "DELETE", str(), None:
            store.delete_job(identifier)
            return b"{}"
    return None


def _file(
    store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None, *, is_upload: bool
) -> bytes | None:
    match request.method, identifier, verb:
        case "POST", None, None if is_upload:
            parts = parts_in(request)
            if request.headers.get("x-goog-upload-protocol") != "multipart" or len(parts) != 2:
                raise SandboxRefusal(400, "The upload has to be of two parts.")
            stated = msgspec.json.decode(parts[0][1])["file"]
            name = uuid4().hex
            store.keep_file(name, parts[1][1])
            return encode({"file": {"name": f"files/{name}", "displayName": stated["displayName"], "state": "ACTIVE"}})
        case "GET", str(), "download" if request.query.get("alt") == "media":
            return store.file(identifier)
        case "DELETE", str(), None:
            store.delete_file(identifier)
            return b"{}"
    return None


def _make(store: BatchStore, request: SandboxRequest, model: str) -> dict[str, Any]:
    asked = msgspec.json.decode(request.body)["batch"]
    lines = store.lines_of(asked["inputConfig"]["fileName"].removeprefix("files/"))
    path = f"/v1beta/{model}:generateContent"
    answers = [(line["key"], store.answer(path, encode(line["request"]))) for line in lines]
    return _job_object(store, store.make(_PREFIX, answers, asked | {"model": model}))


def _job_object(store: BatchStore, job: Job) -> dict[str, Any]:
    state = "FAILED" if job.is_refused else "CANCELLED" if job.cancelled else "SUCCEEDED"
    output = {}
    if job.ended and state != "FAILED":
        store.keep_file(f"batch-{job.id}", b"".join(_results(job)))
        output = {"output": {"responsesFile": f"files/batch-{job.id}"}}
    return {
        "name": f"batches/{job.id}",
        "metadata": {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "model": job.asked["model"],
            "displayName": job.asked["displayName"],
            "inputConfig": job.asked["inputConfig"],
            "createTime": datetime.fromtimestamp(job.made, UTC).isoformat(),
            "state": f"BATCH_STATE_{state if job.ended else 'RUNNING'}",
            **output,
        },
        **({"done": True} if job.ended else {}),
    }


def _results(job: Job) -> list[bytes]:
    lines = []
    for key, answer in job.lines:
        if answer.script == "missing":
            continue
        line: dict[str, Any] = {"key": key, "error": {"code": 1, "message": "The request was not executed."}}
        if job.is_answered(answer) and answer.status < 400:
            line = {"key": key, "response": msgspec.Raw(answer.body)}
        elif job.is_answered(answer):
            error = msgspec.json.decode(answer.body)["error"]
            line["error"] = {"code": _CODES.get(answer.status, 2), "message": error["message"]}
        lines += spoilt(encode(line), key, answer.script)
    return lines
