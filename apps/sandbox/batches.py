"""Batches of the sandbox: batch APIs of OpenAI (and Groq), Anthropic, Google and Mistral; kept in memory.

A job is answered when it is made, line by line as requests of its own, and has ended a moment later. Its messages
script the outcome of a line, or of the whole job (`batch=…`, `scenario.py`).
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from apps.sandbox.http_framing import SandboxRequest
from apps.sandbox.scenario import SandboxRefusal

MOMENT = 0.02
"""Seconds after which a job has ended."""
MAX_KEPT = 200
"""Files and jobs that are kept; the oldest make room."""

_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')


class LineAnswer(NamedTuple):
    """The answer to a line: a status, a body, and its script for the batch."""

    status: int
    body: bytes
    script: str | None


Answerer = Callable[[str, bytes], LineAnswer]


@dataclass(slots=True)
class Job:
    """A job: its lines by their ids, and the script for all of it."""

    id: str
    lines: list[tuple[str, LineAnswer]]
    asked: dict[str, Any]
    made: float = field(default_factory=time.time)
    cancelled: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether the job fails as a whole."""
        return any(answer.script == "refused" for _, answer in self.lines)

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        is_endless = any(answer.script == "running" for _, answer in self.lines)
        return self.cancelled or (not is_endless and time.time() - self.made > MOMENT)

    def is_answered(self, answer: LineAnswer) -> bool:
        """Return whether a line was answered before the job ended."""
        return not self.cancelled and answer.script not in {"expired", "missing"} and not self.is_refused


class BatchStore:
    """Files and jobs; `answer` answers a line by its path and body."""

    def __init__(self, answer: Answerer) -> None:
        self.answer = answer
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def make(self, prefix: str, lines: list[tuple[str, LineAnswer]], asked: dict[str, Any]) -> Job:
        """Return a new job; the prefix of its id is its API's."""
        job = Job(f"{prefix}{uuid4().hex}", lines, asked)
        _keep(self._jobs, job.id, job)
        return job

    def job(self, name: str | None) -> Job:
        """Return a job. Raises SandboxRefusal."""
        found: Job = _found(self._jobs, name)
        return found

    def listed(self, prefix: str) -> list[Job]:
        """Return the jobs of an API, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.id.startswith(prefix)]

    def cancel(self, name: str | None) -> Job:
        """Return a job, cancelled. Raises SandboxRefusal."""
        job = self.job(name)
        job.cancelled = True
        return job

    def delete_job(self, name: str | None) -> None:
        """Forget a job. Raises SandboxRefusal."""
        self._jobs.pop(self.job(name).id)

    def keep_file(self, name: str, content: bytes) -> None:
        """Keep a file, unless there is one of this name."""
        if name not in self._files:
            _keep(self._files, name, content)

    def file(self, name: str | None) -> bytes:
        """Return a file. Raises SandboxRefusal."""
        return bytes(_found(self._files, name))

    def has_file(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return name in self._files

    def delete_file(self, name: str | None) -> None:
        """Forget a file. Raises SandboxRefusal."""
        self.file(name)
        self._files.pop(str(name))

    def lines_of(self, name: str | None) -> list[dict[str, Any]]:
        """Return the lines of a file. Raises SandboxRefusal."""
        return [msgspec.json.decode(text) for text in self.file(name).splitlines()]


def lines_by_custom_id(job: Job, *, good: bool) -> list[bytes]:
    """Return the results of a job as OpenAI writes them, those that were answered well or all others."""
    lines = []
    for custom_id, answer in job.lines:
        answered, error = job.is_answered(answer), None
        if answer.script == "missing" or good != (answered and answer.status < 400):
            continue
        response = {"status_code": answer.status, "request_id": uuid4().hex, "body": msgspec.Raw(answer.body)}
        if not answered:
            code = "batch_cancelled" if job.cancelled else "batch_expired"
            error = {"code": code, "message": "This request was not executed."}
        line = {"id": f"batch_req_{uuid4().hex}", "custom_id": custom_id, "error": error}
        lines += spoilt(encode(line | {"response": response if answered else None}), custom_id, answer.script)
    return lines


def spoilt(line: bytes, custom_id: str, script: str | None) -> list[bytes]:
    """Return a line's text in the results: once, twice, half of it, or under another job's id."""
    match script:
        case "twice":
            return [line + b"\n", line.replace(b"You said", b"Then said") + b"\n"]
        case "garbage":
            return [line[: len(line) // 2] + b"\n"]
        case "stray":
            return [line.replace(custom_id.encode(), b"somebody-elses") + b"\n"]
    return [line + b"\n"]


def parts_in(request: SandboxRequest) -> list[tuple[bytes, bytes]]:
    """Return the head and the content of each part of a body in parts."""
    boundary = _BOUNDARY.search(request.headers.get("content-type", ""))
    pieces = request.body.split(b"--" + boundary[1].encode())[1:-1] if boundary else []
    split = [piece.partition(b"\r\n\r\n") for piece in pieces]
    return [(head, content.removesuffix(b"\r\n")) for head, _, content in split]


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    return msgspec.json.encode(value)


def _keep(kept: OrderedDict[str, Any], name: str, value: Any) -> None:
    kept[name] = value
    if len(kept) > MAX_KEPT:
        kept.popitem(last=False)


def _found(kept: OrderedDict[str, Any], name: str | None) -> Any:
    if name is None or name not in kept:
        raise SandboxRefusal(404, f"No such object: {name}")
    return kept[name]


# --- OpenAI's batch API, which is Groq's too: `/v1/files` and `/v1/batches`. Mistral's files are the same.

_OPENAI_PATH = re.compile(r"/v1/(files|batches)(?:/([\w-]+))?(?:/(content|cancel))?")
_OPENAI_PREFIX = "batch_"


def _answer_openai(
    store: BatchStore, request: SandboxRequest, kind: str, identifier: str | None, verb: str | None
) -> bytes | None:
    """Return the body of an answer, None for what there is not. Raises SandboxRefusal."""
    return (_openai_file if kind == "files" else _openai_batch)(store, request, identifier, verb)


def _openai_file(store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
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


def _openai_batch(store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
    match request.method, identifier, verb:
        case "POST", None, None:
            asked = msgspec.json.decode(request.body)
            lines = store.lines_of(asked["input_file_id"])
            if len({line["body"]["model"] for line in lines}) > 1:
                raise SandboxRefusal(400, "Every line must ask for the same model.")
            answers = [(line["custom_id"], store.answer(line["url"], encode(line["body"]))) for line in lines]
            return encode(_openai_job(store, store.make(_OPENAI_PREFIX, answers, asked)))
        case "GET", None, None:
            listed = [_openai_job(store, job) for job in store.listed(_OPENAI_PREFIX)]
            return encode({"object": "list", "data": listed, "has_more": False})
        case "GET", str(), None:
            return encode(_openai_job(store, store.job(identifier)))
        case "POST", str(), "cancel":
            return encode(_openai_job(store, store.cancel(identifier)))
    return None


def _openai_job(store: BatchStore, job: Job) -> dict[str, Any]:
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


# --- Mistral's batch API: `/v1/batch/jobs`; its files are at OpenAI's path.

_MISTRAL_PATH = re.compile(r"/v1/batch/jobs(?:/([\w-]+))?(?:/(cancel))?")
_MISTRAL_PREFIX = "mistral-"


def _answer_mistral(
    store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None
) -> bytes | None:
    """Return the body of an answer, None for what there is not. Raises SandboxRefusal."""
    match request.method, identifier, verb:
        case "POST", None, None:
            asked = msgspec.json.decode(request.body)
            lines = [line for name in asked["input_files"] for line in store.lines_of(name)]
            bodies = [(line["custom_id"], line["body"] | {"model": asked["model"]}) for line in lines]
            answers = [(name, store.answer(asked["endpoint"], encode(body))) for name, body in bodies]
            return encode(_mistral_job(store, store.make(_MISTRAL_PREFIX, answers, asked)))
        case "GET", None, None:
            first = 100 * int(request.query.get("page", "0"))
            jobs = store.listed(_MISTRAL_PREFIX)
            listed = [_mistral_job(store, job) for job in jobs[first : first + 100]]
            return encode({"object": "list", "data": listed, "total": len(jobs)})
        case "GET", str(), None:
            return encode(_mistral_job(store, store.job(identifier)))
        case "POST", str(), "cancel":
            return encode(_mistral_job(store, store.cancel(identifier)))
    return None


def _mistral_job(store: BatchStore, job: Job) -> dict[str, Any]:
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


# --- Anthropic's Message Batches API: `/v1/messages/batches`.

_ANTHROPIC_PATH = re.compile(r"/v1/messages/batches(?:/([\w-]+))?(?:/(results|cancel))?")
_ANTHROPIC_PREFIX = "msgbatch_"


def _answer_anthropic(
    store: BatchStore, request: SandboxRequest, identifier: str | None, verb: str | None
) -> bytes | None:
    """Return the body of an answer, None for what there is not. Raises SandboxRefusal."""
    match request.method, identifier, verb:
        case "POST", None, None:
            asked = msgspec.json.decode(request.body)["requests"]
            answers = [(one["custom_id"], store.answer("/v1/messages", encode(one["params"]))) for one in asked]
            return encode(_anthropic_job(store.make(_ANTHROPIC_PREFIX, answers, {})))
        case "GET", None, None:
            listed = [_anthropic_job(job) for job in store.listed(_ANTHROPIC_PREFIX)]
            return encode({"data": listed, "has_more": False, "first_id": None, "last_id": None})
        case "GET", str(), None:
            return encode(_anthropic_job(store.job(identifier)))
        case "GET", str(), "results":
            return b"".join(_anthropic_results(store.job(identifier)))
        case "POST", str(), "cancel":
            return encode(_anthropic_job(store.cancel(identifier)))
        case "DELETE", str(), None:
            store.delete_job(identifier)
            return encode({"id": identifier, "type": "message_batch_deleted"})
    return None


def _anthropic_results(job: Job) -> list[bytes]:
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


def _anthropic_job(job: Job) -> dict[str, Any]:
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


# --- Google's batch API: files that are uploaded and downloaded, `…:batchGenerateContent`, `/v1beta/batches`.

_GOOGLE_PATH = re.compile(
    r"(/upload)?/v1beta/(?:(files|batches)(?:/([\w-]+))?(?::(download|cancel))?|(models/[^/]+):batchGenerateContent)"
)
_GOOGLE_PREFIX = "google-"
# Codes of gRPC, which errors of lines have, by the status that the request would have had.
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 429: 8, 500: 13, 503: 14, 504: 4}


def _answer_google(
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
        return _google_file(store, request, identifier, verb, is_upload=upload is not None)
    match request.method, identifier, verb:
        case "GET", None, None:
            return encode({"operations": [_google_job(store, job) for job in store.listed(_GOOGLE_PREFIX)]})
        case "GET", str(), None:
            return encode(_google_job(store, store.job(identifier)))
        case "POST", str(), "cancel":
            store.cancel(identifier)
            return b"{}"
        case "DELETE", str(), None:
            store.delete_job(identifier)
            return b"{}"
    return None


def _google_file(
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
    return _google_job(store, store.make(_GOOGLE_PREFIX, answers, asked | {"model": model}))


def _google_job(store: BatchStore, job: Job) -> dict[str, Any]:
    state = "FAILED" if job.is_refused else "CANCELLED" if job.cancelled else "SUCCEEDED"
    output = {}
    if job.ended and state != "FAILED":
        store.keep_file(f"batch-{job.id}", b"".join(_google_results(job)))
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


def _google_results(job: Job) -> list[bytes]:
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


# The paths of each API, and what answers there.
_APIS: tuple[tuple[re.Pattern[str], Callable[..., bytes | None]], ...] = (
    (_ANTHROPIC_PATH, _answer_anthropic),
    (_GOOGLE_PATH, _answer_google),
    (_MISTRAL_PATH, _answer_mistral),
    (_OPENAI_PATH, _answer_openai),
)


class SandboxBatches:
    """The files and jobs of one sandbox. `answer` answers a line by its path and body."""

    def __init__(self, answer: Answerer) -> None:
        self._store = BatchStore(answer)

    def reply_to(self, request: SandboxRequest) -> bytes | None:
        """Return the body of an answer, None for a request that is not about batches. Raises SandboxRefusal."""
        for path, answer in _APIS:
            if found := path.fullmatch(request.path):
                return answer(self._store, request, *found.groups())
        return None
