"""`/v1/uploads`: create an upload, add parts to it, complete or cancel it. OpenAI's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from apps.batches import uploads
from apps.batches.access import insist_on_keeping
from apps.batches.file_endpoints import file_object
from apps.batches.file_fields import max_bytes, read_completion, read_new_upload
from apps.batches.incoming_files import IncomingFile, receive
from apps.batches.models import StoredFile, Upload
from apps.batches.stored_files import FileWriter, name_in
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import PartHead
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.kernel.upload_bounds import MAX_FILE_PART

Record = dict[str, Any]


def create_upload(request: ClientRequest) -> ClientResponse:
    """Create an upload, whose parts are taken for an hour."""

    def create(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        body, _ = read_body(request, policy.organization_id)
        return _answer(_upload_object(uploads.create(policy, read_new_upload(body))))

    return _authenticated(request, create)


def add_part(request: ClientRequest) -> ClientResponse:
    """Store a part that a form brings, as it arrives."""

    def add(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        upload = _find(policy, request)
        uploads.insist_on_pending(upload)
        most = min(MAX_FILE_PART, max_bytes(None))

        def begin(head: PartHead, fields: Mapping[str, str]) -> tuple[FileWriter, int]:
            return FileWriter.of_row(uploads.new_part(upload), uploads.insert_part), most

        def finish(file: IncomingFile, fields: Mapping[str, str]) -> None:
            file.writer.row.lines = file.line_ends

        return _answer(_part_object(receive(request, policy, "data", most, begin, finish).row))

    return _authenticated(request, add)


def complete_upload(request: ClientRequest) -> ClientResponse:
    """Make a file of an upload's parts."""

    def complete(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        body, _ = read_body(request, policy.organization_id)
        row, file = uploads.complete(_find(policy, request), read_completion(body))
        return _answer({**_upload_object(row), "file": file_object(file)})

    return _authenticated(request, complete)


def cancel_upload(request: ClientRequest) -> ClientResponse:
    """Cancel an upload; one that was cancelled stays so."""
    return _authenticated(request, lambda policy: _answer(_upload_object(uploads.cancel(_find(policy, request)))))


def _upload_object(row: Upload) -> Record:
    return {
        "id": row.pk,
        "object": "upload",
        "bytes": row.size,
        "created_at": int(row.created_at.timestamp()),
        "expires_at": int(row.expires_at.timestamp()),
        "filename": name_in(row),
        "purpose": row.purpose,
        "status": uploads.status_of(row),
        "file": None,
    }


def _part_object(row: StoredFile) -> Record:
    created_at = int(row.created_at.timestamp())
    return {"id": row.pk, "object": "upload.part", "created_at": created_at, "upload_id": row.upload_id}


def _find(policy: Policy, request: ClientRequest) -> Upload:
    """Return the upload that the path names. Raises NotFound."""
    return uploads.access_upload(policy, request.parameters["upload_id"])


def _authenticated(request: ClientRequest, work: Callable[[Policy], ClientResponse]) -> ClientResponse:
    return answer_authenticated(request, "uploads", OPENAI, lambda token: work(find_current_policy(token)))


def _answer(body: Record) -> ClientResponse:
    return json_response(msgspec.json.encode(body))
