"""Jobs and files of batch APIs: created, stored and found, with the scripted outcomes of their lines."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
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
