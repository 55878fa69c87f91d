"""Rows of a batch's lines: their requests and results, encrypted and decrypted."""

from __future__ import annotations

import msgspec

from apps.batches.line_format import LineRequest
from apps.batches.models import Batch, BatchLine
from apps.responses.encrypted_json import decrypt_bytes, encrypt_bytes


class LineResult(msgspec.Struct, frozen=True):
    """The result of a line: an HTTP status, and the JSON of the body."""

    status: int
    body: msgspec.Raw


def line_id(row: Batch, position: int) -> str:
    """Return the id of a line as clients and the log see it, the same for every process."""
    return f"batch_req_{row.pk.partition('_')[2]}_{position}"


def encrypt_request(row: Batch, position: int, request: LineRequest) -> str:
    """Return what a line asks as its column has it."""
    return encrypt_bytes(msgspec.json.encode(request), row.project_id, _place(row.pk, position, "request"))


def request_of(line: BatchLine) -> LineRequest:
    """Return what a line asks. Raises UnreadableSecretError."""
    project_id = line.batch.project_id
    data = decrypt_bytes(line.sealed_request, project_id, _place(line.batch_id, line.position, "request"))
    return msgspec.json.decode(data, type=LineRequest)


def encrypt_result(line: BatchLine, result: LineResult) -> str:
    """Return what a line was answered as its column has it."""
    place = _place(line.batch_id, line.position, "result")
    return encrypt_bytes(msgspec.json.encode(result), line.batch.project_id, place)


def result_of(line: BatchLine) -> LineResult | None:
    """Return what a line was answered, None where it never was. Raises UnreadableSecretError."""
    if not line.sealed_result:
        return None
    place = _place(line.batch_id, line.position, "result")
    return msgspec.json.decode(decrypt_bytes(line.sealed_result, line.batch.project_id, place), type=LineResult)


def encrypt_refusal(row: Batch, result: LineResult) -> str:
    """Return what all unpaid lines of a batch are answered as its column has it."""
    return encrypt_bytes(msgspec.json.encode(result), row.project_id, f"batch:{row.pk}:refusal")


def refusal_of(row: Batch) -> LineResult:
    """Return what all unpaid lines of a batch are answered. Raises UnreadableSecretError."""
    data = decrypt_bytes(row.sealed_refusal, row.project_id, f"batch:{row.pk}:refusal")
    return msgspec.json.decode(data, type=LineResult)


def _place(batch_id: str, position: int, column: str) -> str:
    return f"batch:{batch_id}:{position}:{column}"
