"""`/v1/messages/batches`: create, retrieve, list, cancel and delete batches of messages, and read their results.

Anthropic's format; the models may be anybody's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from apps.batches import batch_rows
from apps.batches.access import access_batch, insist_on_keeping, visible_batches
from apps.batches.batch_endpoints import headers_of_lines
from apps.batches.file_endpoints import content_answer
from apps.batches.file_fields import Listing, read_limit
from apps.batches.line_call import MESSAGES
from apps.batches.lists import beyond, page_of
from apps.batches.message_batch_fields import read_requests
from apps.batches.models import Batch, BatchFormat, BatchStatus, FilePurpose, LineOutcome, StoredFile
from apps.batches.stored_files import FileOwner, FileWriter
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.anthropic import CLIENT as ANTHROPIC
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.kernel.concurrency.offload import offload
from apps.kernel.errors import ApiError, InvalidRequest, NotFound
from apps.kernel.postgres import database
from apps.responses.paging import last_of
from apps.responses.retention import expiry_of

Record = dict[str, Any]

_USUAL_PAGE, _MOST_PAGE = 20, 1_000
# Headers that mean something to each line, beside those of any request.
_OF_LINES = ("anthropic-beta", "anthropic-version")
_ENDED = (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)


def create_message_batch(request: ClientRequest) -> ClientResponse:
    """Create a batch of requests for messages."""

    def create(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        body, _ = read_body(request, policy.organization_id)
        total, lines = offload(len(body), partial(read_requests, body))
        del body

        # Before its requests are stored; of a batch that is refused after all they do not stay.
        database.write(partial(batch_rows.insist_on_room_for_batch, policy, total))
        file = _store(policy, lines)
        make = partial(
            batch_rows.create,
            policy,
            BatchFormat.ANTHROPIC,
            endpoint=MESSAGES,
            input_file_id=file.pk,
            headers={**headers_of_lines(request), **request.headers(*_OF_LINES)},
            lines=total,
            total=total,
        )
        try:
            row = database.write(make)
        except ApiError:
            database.write(StoredFile.objects.filter(pk=file.pk).delete)
            raise
        return _answer(message_batch_object(row))

    return _authenticated(request, create)


def retrieve_message_batch(request: ClientRequest) -> ClientResponse:
    """Tell of a batch."""
    return _authenticated(request, lambda policy: _answer(message_batch_object(_find(policy, request))))


def list_message_batches(request: ClientRequest) -> ClientResponse:
    """List the project's batches, the newest first."""

    def list_them(policy: Policy) -> ClientResponse:
        query = request.query_values
        limit = read_limit(query, usual=_USUAL_PAGE, most=_MOST_PAGE)
        after, before = last_of(query, "after_id"), last_of(query, "before_id")
        if after is not None and before is not None:
            raise InvalidRequest("after_id and before_id cannot both be given", param="before_id")
        rows = visible_batches(policy, BatchFormat.ANTHROPIC)
        if after is not None:
            rows = rows.filter(database.read(partial(beyond, rows, after, "after_id", older=True)))
        if before is not None:
            rows = rows.filter(database.read(partial(beyond, rows, before, "before_id", older=False)))
        # Those before one are the nearest to it.
        found, has_more = page_of(rows, Listing(limit, "asc" if before is not None else "desc", None))
        shown = [message_batch_object(row) for row in (reversed(found) if before is not None else found)]
        first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        return _answer({"data": shown, "has_more": has_more, "first_id": first, "last_id": last})

    return _authenticated(request, list_them)


def cancel_message_batch(request: ClientRequest) -> ClientResponse:
    """Cancel a batch: what was begun is answered, the rest is not. One that has ended stays as it is."""

    def cancel(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        return _answer(message_batch_object(database.write(partial(batch_rows.cancel, row.pk, timezone.now()))))

    return _authenticated(request, cancel)


def delete_message_batch(request: ClientRequest) -> ClientResponse:
    """Delete a batch that has ended, with its results."""

    def delete(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        if row.status not in _ENDED:
            raise InvalidRequest("This message batch is being processed: cancel it before you delete it")
        files = [identifier for identifier in (row.input_file_id, row.output_file_id) if identifier is not None]
        database.write(StoredFile.objects.filter(pk__in=files, project_id=row.project_id).delete)
        database.write(Batch.objects.filter(pk=row.pk).delete)
        return _answer({"id": row.pk, "type": "message_batch_deleted"})

    return _authenticated(request, delete)


def read_message_batch_results(request: ClientRequest) -> ClientResponse:
    """Send the results of a batch that has ended, one JSON object a line, in the order of its requests."""

    def read(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        if row.status not in _ENDED:
            raise InvalidRequest("This message batch has no results yet: processing has not ended")
        file = database.read(StoredFile.objects.filter(pk=row.output_file_id, expires_at__gt=timezone.now()).first)
        if file is None:
            raise NotFound("This message batch has no results, or has them no more")
        return content_answer(file, "application/x-jsonl", [])

    return _authenticated(request, read)


def message_batch_object(row: Batch) -> Record:
    """Return a batch as Anthropic's API tells of it."""
    has_ended = row.status in _ENDED
    ended = database.read(partial(batch_rows.outcomes_of, row)) if has_ended else {}
    counts = {
        "processing": row.total - sum(ended.values()),
        "succeeded": ended.get(LineOutcome.SUCCEEDED, 0),
        "errored": ended.get(LineOutcome.ERRORED, 0),
        "canceled": ended.get(LineOutcome.CANCELLED, 0),
        "expired": ended.get(LineOutcome.EXPIRED, 0),
    }
    status = "ended" if has_ended else "in_progress" if row.cancelling_at is None else "canceling"
    return {
        "id": row.pk,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": _moment(row.created_at),
        "expires_at": _moment(row.expires_at),
        "ended_at": _moment(row.ended_at),
        "cancel_initiated_at": _moment(row.cancelling_at),
        "archived_at": None,
        "results_url": f"{settings.PUBLIC_URL}{MESSAGES}/batches/{row.pk}/results" if has_ended else None,
    }


def _store(policy: Policy, lines: bytes) -> StoredFile:
    """Store the requests of a batch as its input, for as long as they may be answered."""
    now = timezone.now()
    kept_until = database.read(partial(expiry_of, policy.organization_id, now))
    owner = FileOwner(policy.organization_id, policy.project_id)
    expires_at = min(kept_until, now + batch_rows.WINDOW + timedelta(hours=1))
    writer = FileWriter(owner, "requests.jsonl", FilePurpose.MESSAGE_BATCH, now=now, expires_at=expires_at)
    writer.begin(len(lines))
    writer.add(lines)
    return writer.close()


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _find(policy: Policy, request: ClientRequest) -> Batch:
    """Return the batch that the path names. Raises NotFound."""
    return access_batch(policy, BatchFormat.ANTHROPIC, request.parameters["batch_id"])


def _authenticated(request: ClientRequest, work: Callable[[Policy], ClientResponse]) -> ClientResponse:
    return answer_authenticated(request, "messages", ANTHROPIC, lambda token: work(find_current_policy(token)))


def _answer(body: Record) -> ClientResponse:
    return json_response(msgspec.json.encode(body))
