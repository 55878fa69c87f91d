"""Google's batch API: an uploaded file of lines, a batch whose display name is its marker, a file of results.

Sources: ai.google.dev/api/batch-mode and /gemini-api/docs/batch-api (`models.batchGenerateContent`; lines are `key` and
`request`, results `key` with `response` or `error`, a status of gRPC; half the usual prices, files up to 2 GB);
`google.genai.batches` (names, states, lists of operations, `files/…:download`); google-gemini/generative-ai-js,
`src/server/file-manager.ts` (an upload in one call). Read 2026-11-23.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from apps.batches.native.formats import MAX_PAGES, JobState, NativeLine, NotSure, SentJob, removed_if_refused
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi
from apps.gateway.failures import UpstreamFailure

_ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"})
_NAME: Final = re.compile(r"(?:files|batches)/[A-Za-z0-9_-]{1,150}")
_UPLOAD: Final = {"X-Goog-Upload-Protocol": "multipart"}
# HTTP statuses of gRPC codes; with any other code a line was not answered, or its provider failed.
_STATUSES: Final = {3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 11: 400, 14: 503, 16: 401}
_CANCELLED: Final = 1


class _Result(msgspec.Struct):
    key: str
    response: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _Status(msgspec.Struct):
    code: int = 2


_DECODER: Final = msgspec.json.Decoder(_Result)
_STATUS_DECODER: Final = msgspec.json.Decoder(_Status)


def submit(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
    """Upload the lines and create a batch of them; return its name. Raises UpstreamFailure."""
    texts = [msgspec.json.encode({"key": line.custom_id, "request": msgspec.Raw(line.body)}) for line in lines]
    boundary = job.id.hex
    parts = _parts(boundary, msgspec.json.encode({"file": {"displayName": str(job.id)}}), b"\n".join(texts) + b"\n")
    texts.clear()
    files = api.with_headers(_UPLOAD).beside("upload")
    file = _name_of(files.send("POST", "/files", parts, f"multipart/related; boundary={boundary}").get("file"))
    batch = {"displayName": str(job.id), "inputConfig": {"fileName": file}}
    model = job.path.removesuffix(":generateContent")
    with removed_if_refused(api, f"/{file}"):
        return _name_of(api.call("POST", f"{model}:batchGenerateContent", {"batch": batch}))


def find(api: ProviderApi, job: SentJob) -> str | None:
    """Return the name of the batch that bears the job's marker. Raises UpstreamFailure, NotSure."""
    token = ""
    for _ in range(MAX_PAGES):
        page = api.call("GET", f"/batches?pageSize=100{token}")
        listed = page.get("operations")
        for row in listed if isinstance(listed, list) else []:
            if isinstance(row, dict) and _metadata(row).get("displayName") == str(job.id):
                return _name_of(row)
        following = page.get("nextPageToken")
        if not isinstance(following, str) or not re.fullmatch(r"[\w=+/-]{1,1000}", following):
            return None
        token = f"&pageToken={following.replace('+', '%2B').replace('/', '%2F').replace('=', '%3D')}"
    # In which order they come is nowhere said.
    raise NotSure("There are more batches than are looked at")


def look(api: ProviderApi, external_id: str) -> JobState:
    """Return how a batch stands. Raises UpstreamFailure."""
    row = api.call("GET", f"/{external_id}")
    metadata = _metadata(row)
    output, sent = metadata.get("output"), metadata.get("inputConfig")
    results = _names(output.get("responsesFile") if isinstance(output, dict) else None)
    uploaded = _names(sent.get("fileName") if isinstance(sent, dict) else None)
    is_ended = row.get("done") is True or str(metadata.get("state")).rpartition("STATE_")[2] in _ENDED
    return JobState(
        is_ended,
        tuple(f"/{name}:download?alt=media" for name in results),
        tuple(f"/{name}" for name in (*results, *uploaded, external_id)),
    )


def read_answers(lines: Iterable[bytes]) -> Iterator[tuple[str, NativeAnswer]]:
    """Yield the answers, errors with the status that they would have had. The rest was cancelled."""
    for line in lines:
        try:
            found = _DECODER.decode(line)
            if found.response:
                yield found.key, NativeAnswer(200, bytes(found.response))
            elif found.error and (code := _STATUS_DECODER.decode(found.error).code) != _CANCELLED:
                body = msgspec.json.encode({"error": found.error})
                yield found.key, NativeAnswer(code if 400 <= code <= 599 else _STATUSES.get(code, 500), body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue


def cancel(api: ProviderApi, external_id: str) -> None:
    """Have a batch cancelled. Raises UpstreamFailure."""
    api.call("POST", f"/{external_id}:cancel")


def _parts(boundary: str, metadata: bytes, content: bytes) -> bytes:
    head = f"--{boundary}\r\nContent-Type: application/json; charset=utf-8\r\n\r\n".encode()
    middle = f"\r\n--{boundary}\r\nContent-Type: application/jsonl\r\n\r\n".encode()
    return head + metadata + middle + content + f"\r\n--{boundary}--\r\n".encode()


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    metadata = row.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _names(name: Any) -> tuple[str, ...]:
    """Return the name of a file, empty for anything else: it becomes a part of an address."""
    return (name,) if isinstance(name, str) and _NAME.fullmatch(name) else ()


def _name_of(row: Any) -> str:
    names = _names(row.get("name") if isinstance(row, dict) else None)
    if not names:
        raise UpstreamFailure("upstream_error", "the answer has no name")
    return names[0]
