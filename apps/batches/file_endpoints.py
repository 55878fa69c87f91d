"""`/v1/files`: upload, list, retrieve and delete files, and read what is in them. OpenAI's format, and Anthropic's for
its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import quote

import msgspec
from django.utils import timezone

from apps.batches.access import access_file, insist_on_keeping, visible_files
from apps.batches.anthropic_files import anthropic_deletion, anthropic_file, anthropic_page
from apps.batches.file_fields import PURPOSES, Upload, read_anthropic_upload, read_listing, read_upload
from apps.batches.lists import page_of
from apps.batches.models import FilePurpose, StoredFile
from apps.batches.stored_files import FileOwner, FileWriter, chunks_of, name_of
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import MULTIPART, read_form
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.anthropic import CLIENT as ANTHROPIC
from apps.gateway.dialects.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.kernel import database
from apps.kernel.errors import InvalidRequest
from apps.kernel.offload import offload
from apps.responses.paging import list_object
from apps.responses.retention import expiry_of

Record = dict[str, Any]

_USUAL_PAGE = 10_000


def create_file(request: ClientRequest) -> ClientResponse:
    """Store a file that a form brings."""
    request.accepted_content_types = (MULTIPART,)

    def create(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        body, _ = read_body(request, policy.organization_id)
        form = offload(len(body), partial(read_form, body, request.content_type_header))
        del body
        read = read_anthropic_upload if _is_anthropics(request) else read_upload
        return _told(request, _store(policy, read(form)))

    return _authenticated(request, create)


def list_files(request: ClientRequest) -> ClientResponse:
    """List the project's files."""

    def list_them(policy: Policy) -> ClientResponse:
        rows = visible_files(policy)
        if _is_anthropics(request):
            return _answer(anthropic_page(rows, request.query_values))
        listing = read_listing(request.query_values, usual=_USUAL_PAGE)
        if listing.purpose is not None:
            if listing.purpose not in {*PURPOSES, FilePurpose.BATCH_OUTPUT}:
                raise InvalidRequest("purpose must be that of a file", param="purpose")
            rows = rows.filter(purpose=listing.purpose)
        found, has_more = page_of(rows, listing)
        return _answer(list_object([file_object(row) for row in found], has_more=has_more))

    return _authenticated(request, list_them)


def retrieve_file(request: ClientRequest) -> ClientResponse:
    """Tell of a file."""
    return _authenticated(request, lambda policy: _told(request, _find(policy, request)))


def delete_file(request: ClientRequest) -> ClientResponse:
    """Delete a file. A batch that has begun has its own copy of the lines."""

    def delete(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        database.write(StoredFile.objects.filter(pk=row.pk).delete)
        if _is_anthropics(request):
            return _answer(anthropic_deletion(row.pk))
        return _answer({"id": row.pk, "object": "file", "deleted": True})

    return _authenticated(request, delete)


def read_file_content(request: ClientRequest) -> ClientResponse:
    """Send what is in a file, a chunk at a time."""

    def read(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        disposition = f"attachment; filename*=UTF-8''{quote(name_of(row), safe='')}"
        return content_answer(row, "application/octet-stream", [("Content-Disposition", disposition)])

    return _authenticated(request, read)


def content_answer(row: StoredFile, content_type: str, headers: list[tuple[str, str]]) -> ClientResponse:
    """Return the answer that sends what is in a file. Raises what reading the first chunk raises."""
    head = [("Content-Type", content_type), ("Content-Length", str(row.size)), *headers]
    chunks: Iterator[bytes] = chunks_of(row)
    first = next(chunks, b"")
    return ClientResponse(200, head, chain((first,), chunks))


def file_object(row: StoredFile) -> Record:
    """Return a file as OpenAI's API tells of it."""
    return {
        "id": row.pk,
        "object": "file",
        "bytes": row.size,
        "created_at": int(row.created_at.timestamp()),
        "expires_at": int(row.expires_at.timestamp()),
        "filename": name_of(row),
        "purpose": row.purpose,
        "status": "processed",
        "status_details": None,
    }


def _store(policy: Policy, upload: Upload) -> StoredFile:
    now = timezone.now()
    expires_at = database.read(partial(expiry_of, policy.organization_id, now))
    if upload.lifetime is not None:
        expires_at = min(expires_at, now + timedelta(seconds=upload.lifetime))
    owner = FileOwner(policy.organization_id, policy.project_id)
    lines = upload.content.count(b"\n") + 1 if upload.purpose == FilePurpose.BATCH else 0
    writer = FileWriter(owner, upload.name, upload.purpose, now=now, expires_at=expires_at, lines=lines)
    writer.begin(len(upload.content))
    writer.add(upload.content)
    return writer.close()


def _find(policy: Policy, request: ClientRequest) -> StoredFile:
    """Return the file that the path names. Raises NotFound."""
    return access_file(policy, request.parameters["file_id"])


def _is_anthropics(request: ClientRequest) -> bool:
    """Tell whether one of Anthropic's clients asks: both makers' ask at the same paths."""
    return request.header("anthropic-version") is not None


def _told(request: ClientRequest, row: StoredFile) -> ClientResponse:
    return _answer(anthropic_file(row) if _is_anthropics(request) else file_object(row))


def _authenticated(request: ClientRequest, work: Callable[[Policy], ClientResponse]) -> ClientResponse:
    dialect: ClientErrorWriter = ANTHROPIC if _is_anthropics(request) else OPENAI
    return answer_authenticated(request, "files", dialect, lambda token: work(find_current_policy(token)))


def _answer(body: Record) -> ClientResponse:
    return json_response(msgspec.json.encode(body))
