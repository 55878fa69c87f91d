"""`/v1/batches`: create, retrieve, list and cancel batches of requests to one endpoint. OpenAI's format.

Source: `openai.types.BatchCreateParams`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from django.utils import timezone

from apps.batches import batch_rows
from apps.batches.access import access_batch, access_file, insist_on_keeping, page_of, visible_batches
from apps.batches.file_fields import MAX_LIFETIME, MIN_LIFETIME, read_listing
from apps.batches.input_lines import MAX_LINES
from apps.batches.line_call import batch_endpoints
from apps.batches.models import Batch, BatchFormat, BatchStatus, FilePurpose, LineOutcome
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.responses.background import kept_headers
from apps.responses.items import list_object, read_metadata, read_object

_WINDOW = "24h"
_KNOWN = frozenset({"input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after"})


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch as a client asks for it; `output_lifetime` is in seconds, None where nothing is said."""

    input_file_id: str
    endpoint: str
    metadata: dict[str, str]
    output_lifetime: int | None


def read_batch(body: bytes, endpoints: Sequence[str]) -> NewBatch:
    """Return the batch that a body asks for, at one of `endpoints`. Raises InvalidRequest naming the field."""
    fields = read_object(body)
    for name in fields:
        if name not in _KNOWN:
            raise InvalidRequest(f"{name[:64]} is no field of a batch", param=name[:64])
    input_file_id, endpoint = fields.get("input_file_id"), fields.get("endpoint")
    if not isinstance(input_file_id, str) or not input_file_id:
        raise InvalidRequest("input_file_id must be the id of a file", param="input_file_id")
    if endpoint not in endpoints:
        raise InvalidRequest(f"endpoint must be one of {', '.join(endpoints)}", param="endpoint")
    if fields.get("completion_window") != _WINDOW:
        raise InvalidRequest(f"completion_window must be {_WINDOW}", param="completion_window")
    lifetime = _read_lifetime(fields.get("output_expires_after"))
    return NewBatch(input_file_id, str(endpoint), read_metadata(fields), lifetime)


def _read_lifetime(value: Any) -> int | None:
    name = "output_expires_after"
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object", param=name)
    if value.get("anchor") != "created_at":
        raise InvalidRequest(f"{name}.anchor must be created_at", param=f"{name}.anchor")
    seconds = value.get("seconds")
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not MIN_LIFETIME <= seconds <= MAX_LIFETIME:
        raise InvalidRequest(
            f"{name}.seconds must be a whole number from {MIN_LIFETIME} to {MAX_LIFETIME}", param=f"{name}.seconds"
        )
    return seconds


Record = dict[str, Any]

_USUAL_PAGE, _MAX_PAGE = 20, 100
# By the status at its end, the column of the API that says when that was.
_ENDED_AT = {
    BatchStatus.COMPLETED: "completed_at",
    BatchStatus.FAILED: "failed_at",
    BatchStatus.EXPIRED: "expired_at",
    BatchStatus.CANCELLED: "cancelled_at",
}
# These name the one request by which a batch was created, and not what its lines ask.
_NOT_OF_LINES = ("x-request-id",)


def create_batch(request: ClientRequest) -> ClientResponse:
    """Create a batch of the lines of a file, which are looked at before the first is answered."""

    def create(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        body, _ = read_body(request, policy.organization_id)
        asked = read_batch(body, batch_endpoints())
        file = access_file(policy, asked.input_file_id, "input_file_id")
        if file.purpose != FilePurpose.BATCH:
            raise InvalidRequest("input_file_id must be a file whose purpose is batch", param="input_file_id")
        make = partial(
            batch_rows.create,
            policy,
            BatchFormat.OPENAI,
            endpoint=asked.endpoint,
            input_file_id=file.pk,
            headers=headers_of_lines(request),
            metadata=asked.metadata,
            output_lifetime=asked.output_lifetime,
            # An earlier version did not count the lines of a file.
            lines=file.lines or MAX_LINES,
        )
        return _answer(batch_object(database.write(make)))

    return _authenticated(request, create)


def retrieve_batch(request: ClientRequest) -> ClientResponse:
    """Tell of a batch."""
    return _authenticated(request, lambda policy: _answer(batch_object(_find(policy, request))))


def list_batches(request: ClientRequest) -> ClientResponse:
    """List the project's batches, the newest first."""

    def list_them(policy: Policy) -> ClientResponse:
        listing = read_listing(request.query_values, usual=_USUAL_PAGE, most=_MAX_PAGE)
        found, has_more = page_of(visible_batches(policy, BatchFormat.OPENAI), listing)
        return _answer(list_object([batch_object(row) for row in found], has_more=has_more))

    return _authenticated(request, list_them)


def cancel_batch(request: ClientRequest) -> ClientResponse:
    """Cancel a batch: lines in progress are answered, the others are not. A batch that has ended does not change."""

    def cancel(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        return _answer(batch_object(database.write(partial(batch_rows.cancel, row.pk, timezone.now()))))

    return _authenticated(request, cancel)


def headers_of_lines(request: ClientRequest) -> dict[str, str]:
    """Return those of a client's headers that mean something to each line."""
    return {name: value for name, value in kept_headers(request).items() if name not in _NOT_OF_LINES}


def batch_object(row: Batch) -> Record:
    """Return a batch as OpenAI's API tells of it."""
    counts = database.read(partial(batch_rows.outcomes_of, row))
    completed = counts.get(LineOutcome.SUCCEEDED, 0)
    errors = batch_rows.errors_of(row) if row.status == BatchStatus.FAILED else []
    # Files of results show with their last line.
    output_id, error_id = (row.output_file_id, row.error_file_id) if row.ended_at is not None else (None, None)
    ended_at = {name: row.ended_at if row.status == status else None for status, name in _ENDED_AT.items()}
    return {
        "id": row.pk,
        "object": "batch",
        "endpoint": row.endpoint,
        "errors": {"object": "list", "data": errors} if errors else None,
        "input_file_id": row.input_file_id,
        "completion_window": "24h",
        "status": batch_rows.status_of(row),
        "output_file_id": output_id,
        "error_file_id": error_id,
        "created_at": _seconds(row.created_at),
        "in_progress_at": _seconds(row.in_progress_at),
        "expires_at": _seconds(row.expires_at),
        "finalizing_at": _seconds(row.finalizing_at),
        "cancelling_at": _seconds(row.cancelling_at),
        **{name: _seconds(moment) for name, moment in ended_at.items()},
        "request_counts": {"total": row.total, "completed": completed, "failed": sum(counts.values()) - completed},
        "metadata": batch_rows.metadata_of(row) or None,
    }


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def _find(policy: Policy, request: ClientRequest) -> Batch:
    """Return the batch that the path names. Raises NotFound."""
    return access_batch(policy, BatchFormat.OPENAI, request.parameters["batch_id"])


def _authenticated(request: ClientRequest, work: Callable[[Policy], ClientResponse]) -> ClientResponse:
    return answer_authenticated(request, "batches", OPENAI, lambda token: work(find_current_policy(token)))


def _answer(body: Record) -> ClientResponse:
    return json_response(msgspec.json.encode(body))
