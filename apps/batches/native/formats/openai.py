"""OpenAI's Batch API, and Groq's: an uploaded file of lines, a batch that bears its marker as metadata, result files.

Lines that are uploaded, and results by custom id, are the same in Mistral's.
Sources: `openai.types.Batch`, `openai.types.BatchCreateParams`, `openai.resources.files`; the guide to the Batch API
(a file has lines of one model; results come in no order, those that failed in a file of their own); console.groq.com/
docs/batch and `groq.types.BatchCreateParams` (the same for chats, up to 100 MB; the list is one page). Read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from apps.batches.native.formats import (
    MAX_PAGES,
    JobState,
    NativeLine,
    SentJob,
    id_of,
    removed_if_refused,
    rows_of,
)
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi

MARKER = "gateway_job"
"""The name in a job's metadata under which its id stands."""
SLACK = 300
"""Seconds by which a provider's clock may be behind."""


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw


class _Result(msgspec.Struct):
    custom_id: str
    response: _Response | None = None


_DECODER = msgspec.json.Decoder(_Result)


def upload(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine], **fields: Any) -> str:
    """Upload a job's lines, each with these fields beside its id and body; return the file's id.

    Raises UpstreamFailure.
    """
    texts = [
        msgspec.json.encode({"custom_id": line.custom_id, **fields, "body": msgspec.Raw(line.body)}) for line in lines
    ]
    boundary = job.id.hex
    form = _form(boundary, b"\n".join(texts) + b"\n", f"{boundary}.jsonl")
    texts.clear()
    return id_of(api.send("POST", "/files", form, f"multipart/form-data; boundary={boundary}"))


def read_answers(lines: Iterable[bytes]) -> Iterator[tuple[str, NativeAnswer]]:
    """Yield the answers. A line without a response expired, or was cancelled."""
    for line in lines:
        try:
            result = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        response = result.response
        if response is not None and 200 <= response.status_code < 600:
            yield result.custom_id, NativeAnswer(response.status_code, bytes(response.body))


def file_path(file: str) -> str:
    """Return the path of an uploaded file, or of a file of results."""
    return f"/files/{quote(file, safe='')}"


def is_marked(row: dict[str, Any], job: SentJob) -> bool:
    """Return whether a job on a list bears this job's marker."""
    metadata = row.get("metadata")
    return isinstance(metadata, dict) and metadata.get(MARKER) == str(job.id)


def created(row: dict[str, Any]) -> float:
    """Return when a job on a list was made, in seconds since the epoch; 0 where it does not say."""
    stated = row.get("created_at")
    return float(stated) if isinstance(stated, (int, float)) else 0.0


def _form(boundary: str, content: bytes, name: str) -> bytes:
    parts = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return parts.encode() + content + f"\r\n--{boundary}--\r\n".encode()


__all__ = ["cancel", "find", "look", "read_answers", "submit"]

# A tuple, as in the other formats: a status may be any JSON, and a set raises TypeError for a list.
_ENDED: Final = ("completed", "failed", "expired", "cancelled")


def submit(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
    """Upload the lines and create a batch of them; return its id. Raises UpstreamFailure."""
    url = f"/v1{job.path}"
    file = upload(api, job, lines, method="POST", url=url)
    marker = {MARKER: str(job.id)}
    asked = {"input_file_id": file, "endpoint": url, "completion_window": "24h", "metadata": marker}
    with removed_if_refused(api, file_path(file)):
        return id_of(api.call("POST", "/batches", asked))


def find(api: ProviderApi, job: SentJob) -> str | None:
    """Return the id of the batch that bears the job's marker. Raises UpstreamFailure."""
    after, since = "", job.since.timestamp() - SLACK
    for _ in range(MAX_PAGES):
        page = api.call("GET", f"/batches?limit=100{after}")
        rows = rows_of(page)
        for row in rows:
            if is_marked(row, job):
                return id_of(row)
        # The newest come first.
        if not page.get("has_more") or not rows or created(rows[-1]) < since:
            return None
        after = f"&after={quote(id_of(rows[-1]), safe='')}"
    return None


def look(api: ProviderApi, external_id: str) -> JobState:
    """Return how a batch stands. Raises UpstreamFailure."""
    row = api.call("GET", _path(external_id))
    results = [row[name] for name in ("output_file_id", "error_file_id") if isinstance(row.get(name), str)]
    files = [*results, *([row["input_file_id"]] if isinstance(row.get("input_file_id"), str) else [])]
    return JobState(
        row.get("status") in _ENDED,
        tuple(f"{file_path(file)}/content" for file in results),
        tuple(map(file_path, files)),
    )


def cancel(api: ProviderApi, external_id: str) -> None:
    """Have a batch cancelled. Raises UpstreamFailure."""
    api.call("POST", f"{_path(external_id)}/cancel")


def _path(external_id: str) -> str:
    return f"/batches/{quote(external_id, safe='')}"
