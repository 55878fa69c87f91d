"""Lines that are uploaded as a file, and results by custom id: what OpenAI's and Mistral's batch APIs share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from apps.batches.native.formats import NativeLine, SentJob, id_of
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
