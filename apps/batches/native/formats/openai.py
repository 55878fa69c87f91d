"""OpenAI's Batch API: an uploaded file of lines, a batch that bears its marker as metadata, files of results.

Sources: `openai.types.Batch`, `openai.types.BatchCreateParams`, `openai.resources.files`; the guide to the Batch API
(a file has lines of one model; results come in no order, those that failed in a file of their own). Read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from apps.batches.native.formats import MOST_PAGES, JobState, NativeLine, SentJob, id_of, rows_of
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi

_MARKER = "gateway_job"
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
# Seconds by which a provider's clock may be behind.
_SLACK = 300


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw


class _Result(msgspec.Struct):
    custom_id: str
    response: _Response | None = None


_DECODER = msgspec.json.Decoder(_Result)


def submit(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
    """Upload the lines and create a batch of them; return its id. Raises UpstreamFailure."""
    url = f"/v1{job.path}"
    texts = [
        msgspec.json.encode({"custom_id": line.custom_id, "method": "POST", "url": url, "body": msgspec.Raw(line.body)})
        for line in lines
    ]
    boundary = job.id.hex
    form = _form(boundary, b"\n".join(texts) + b"\n", f"{boundary}.jsonl")
    texts.clear()
    file = api.send("POST", "/files", form, f"multipart/form-data; boundary={boundary}")
    made = api.call(
        "POST",
        "/batches",
        {
            "input_file_id": id_of(file),
            "endpoint": url,
            "completion_window": "24h",
            "metadata": {_MARKER: str(job.id)},
        },
    )
    return id_of(made)


def find(api: ProviderApi, job: SentJob) -> str | None:
    """Return the id of the batch that bears the job's marker. Raises UpstreamFailure."""
    after, since = "", job.since.timestamp() - _SLACK
    for _ in range(MOST_PAGES):
        page = api.call("GET", f"/batches?limit=100{after}")
        rows = rows_of(page)
        for row in rows:
            metadata = row.get("metadata")
            if isinstance(metadata, dict) and metadata.get(_MARKER) == str(job.id):
                return id_of(row)
        # The newest come first.
        if not page.get("has_more") or not rows or _created(rows[-1]) < since:
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
        tuple(f"/files/{quote(file, safe='')}/content" for file in results),
        tuple(f"/files/{quote(file, safe='')}" for file in files),
    )


def read_answers(lines: Iterable[bytes]) -> Iterator[tuple[str, NativeAnswer]]:
    """Yield what was answered. A line without a response was not: it expired, or was cancelled."""
    for line in lines:
        try:
            result = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        response = result.response
        if response is not None and 200 <= response.status_code < 600:
            yield result.custom_id, NativeAnswer(response.status_code, bytes(response.body))


def cancel(api: ProviderApi, external_id: str) -> None:
    """Have a batch cancelled. Raises UpstreamFailure."""
    api.call("POST", f"{_path(external_id)}/cancel")


def _form(boundary: str, content: bytes, name: str) -> bytes:
    parts = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return parts.encode() + content + f"\r\n--{boundary}--\r\n".encode()


def _path(external_id: str) -> str:
    return f"/batches/{quote(external_id, safe='')}"


def _created(row: dict[str, Any]) -> float:
    created = row.get("created_at")
    return float(created) if isinstance(created, (int, float)) else 0.0
