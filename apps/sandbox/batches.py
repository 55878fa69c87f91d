"""Batches of the sandbox: OpenAI's `/v1/files` and `/v1/batches`, Anthropic's `/v1/messages/batches`; kept in memory.

A job is answered when it is made, line by line as requests of its own, and has ended a moment later. What becomes of a
line, or of the whole job, is scripted in its messages (`batch=…`, `scenario.py`). Knows both APIs. Must never know a
socket.
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
from apps.sandbox.refusal import SandboxRefusal

MOMENT = 0.02
"""Seconds after which a job has ended."""
MAX_KEPT = 200
"""Files and jobs that are kept; the oldest make room."""

_OPENAI = re.compile(r"/v1/(files|batches)(?:/([\w-]+))?(?:/(content|cancel))?")
_ANTHROPIC = re.compile(r"/v1/messages/batches(?:/([\w-]+))?(?:/(results|cancel))?")
_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')


class LineAnswer(NamedTuple):
    """What a line is answered: a status, a body, and what its script says of its batch."""

    status: int
    body: bytes
    script: str | None


Answerer = Callable[[str, bytes], LineAnswer]


@dataclass(slots=True)
class _Job:
    id: str
    lines: list[tuple[str, LineAnswer]]
    asked: dict[str, Any]
    made: float = field(default_factory=time.time)
    cancelled: bool = False

    @property
    def scripts(self) -> set[str | None]:
        return {answer.script for _, answer in self.lines}

    @property
    def ended(self) -> bool:
        return self.cancelled or ("running" not in self.scripts and time.time() - self.made > MOMENT)

    def is_answered(self, answer: LineAnswer) -> bool:
        return not self.cancelled and answer.script not in {"expired", "missing"} and "refused" not in self.scripts


class SandboxBatches:
    """The files and jobs of one sandbox. `answer` answers a line by its path and body."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def reply_to(self, request: SandboxRequest) -> bytes | None:
        """Return the body of an answer, None for what is no request about batches. Raises SandboxRefusal."""
        if found := _ANTHROPIC.fullmatch(request.path):
            return self._messages(request, *found.groups())
        if found := _OPENAI.fullmatch(request.path):
            kind, identifier, verb = found.groups()
            return (self._file if kind == "files" else self._batch)(request, identifier, verb)
        return None

    # --- OpenAI
    def _file(self, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
        match request.method, verb:
            case "POST", None if identifier is None:
                made = f"file-{uuid4().hex}"
                _keep(self._files, made, _file_in(request))
                return _json({"id": made, "object": "file", "bytes": len(self._files[made]), "purpose": "batch"})
            case "GET", "content":
                return bytes(_found(self._files, identifier))
            case "DELETE", None:
                _found(self._files, identifier)
                self._files.pop(str(identifier))
                return _json({"id": identifier, "object": "file", "deleted": True})
        return None

    def _batch(self, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
        match request.method, identifier, verb:
            case "POST", None, None:
                asked = msgspec.json.decode(request.body)
                lines = [msgspec.json.decode(text) for text in _found(self._files, asked["input_file_id"]).splitlines()]
                if len({line["body"]["model"] for line in lines}) > 1:
                    raise SandboxRefusal(400, "Every line must ask for the same model.")
                answers = [(line["custom_id"], self._answer(line["url"], _json(line["body"]))) for line in lines]
                return _json(self._told(self._make("batch_", answers, asked)))
            case "GET", None, None:
                listed = [self._told(job) for job in self._listed("batch_")]
                return _json({"object": "list", "data": listed, "has_more": False})
            case "GET", str(), None:
                return _json(self._told(_found(self._jobs, identifier)))
            case "POST", str(), "cancel":
                job = _found(self._jobs, identifier)
                job.cancelled = True
                return _json(self._told(job))
        return None

    def _told(self, job: _Job) -> dict[str, Any]:
        status = "failed" if "refused" in job.scripts else "cancelled" if job.cancelled else "completed"
        if job.ended and status != "failed":
            for kind, wanted in (("output", True), ("error", False)):
                name = f"file-{job.id}-{kind}"
                if name not in self._files:
                    _keep(self._files, name, b"".join(_openai_lines(job, good=wanted)))
        files = {
            f"{kind}_file_id": name for kind in ("output", "error") if (name := f"file-{job.id}-{kind}") in self._files
        }
        return {
            "id": job.id,
            "object": "batch",
            "endpoint": job.asked["endpoint"],
            "input_file_id": job.asked["input_file_id"],
            "metadata": job.asked.get("metadata"),
            "completion_window": "24h",
            "status": status if job.ended else "in_progress",
            "created_at": int(job.made),
            **files,
        }

    # --- Anthropic
    def _messages(self, request: SandboxRequest, identifier: str | None, verb: str | None) -> bytes | None:
        match request.method, identifier, verb:
            case "POST", None, None:
                asked = msgspec.json.decode(request.body)["requests"]
                answers = [(one["custom_id"], self._answer("/v1/messages", _json(one["params"]))) for one in asked]
                return _json(_message_batch(self._make("msgbatch_", answers, {})))
            case "GET", None, None:
                listed = [_message_batch(job) for job in self._listed("msgbatch_")]
                return _json({"data": listed, "has_more": False, "first_id": None, "last_id": None})
            case "GET", str(), None:
                return _json(_message_batch(_found(self._jobs, identifier)))
            case "GET", str(), "results":
                return b"".join(_anthropic_lines(_found(self._jobs, identifier)))
            case "POST", str(), "cancel":
                job = _found(self._jobs, identifier)
                job.cancelled = True
                return _json(_message_batch(job))
            case "DELETE", str(), None:
                _found(self._jobs, identifier)
                self._jobs.pop(identifier)
                return _json({"id": identifier, "type": "message_batch_deleted"})
        return None

    def _make(self, prefix: str, answers: list[tuple[str, LineAnswer]], asked: dict[str, Any]) -> _Job:
        job = _Job(f"{prefix}{uuid4().hex}", answers, asked)
        _keep(self._jobs, job.id, job)
        return job

    def _listed(self, prefix: str) -> list[_Job]:
        return [job for job in reversed(self._jobs.values()) if job.id.startswith(prefix)]


def _openai_lines(job: _Job, *, good: bool) -> list[bytes]:
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
        lines += _spoilt(_json(line | {"response": response if answered else None}), custom_id, answer.script)
    return lines


def _anthropic_lines(job: _Job) -> list[bytes]:
    lines = []
    for custom_id, answer in job.lines:
        if answer.script == "missing":
            continue
        result: dict[str, Any] = {"type": "canceled" if job.cancelled else "expired"}
        if job.is_answered(answer):
            good = answer.status < 400
            kind, name = ("succeeded", "message") if good else ("errored", "error")
            result = {"type": kind, name: msgspec.Raw(answer.body)}
        lines += _spoilt(_json({"custom_id": custom_id, "result": result}), custom_id, answer.script)
    return lines


def _spoilt(line: bytes, custom_id: str, script: str | None) -> list[bytes]:
    """Return what stands for a line in its results: it, twice, half of it, or under somebody else's id."""
    match script:
        case "twice":
            return [line + b"\n", line.replace(b"You said", b"Then said") + b"\n"]
        case "garbage":
            return [line[: len(line) // 2] + b"\n"]
        case "stray":
            return [line.replace(custom_id.encode(), b"somebody-elses") + b"\n"]
    return [line + b"\n"]


def _message_batch(job: _Job) -> dict[str, Any]:
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


def _file_in(request: SandboxRequest) -> bytes:
    """Return the file of a form. Raises SandboxRefusal."""
    boundary = _BOUNDARY.search(request.headers.get("content-type", ""))
    for part in request.body.split(b"--" + boundary[1].encode()) if boundary else ():
        head, _, content = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return content.removesuffix(b"\r\n")
    raise SandboxRefusal(400, "There is no file.", param="file")


def _keep(kept: OrderedDict[str, Any], name: str, value: Any) -> None:
    kept[name] = value
    if len(kept) > MAX_KEPT:
        kept.popitem(last=False)


def _found(kept: OrderedDict[str, Any], name: str | None) -> Any:
    if name is None or name not in kept:
        raise SandboxRefusal(404, f"No such object: {name}")
    return kept[name]


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
