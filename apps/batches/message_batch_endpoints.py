"""`/v1/messages/batches`: create, retrieve, list, cancel and delete batches of messages, and read their results.

Anthropic's format; the models may be of any provider. Source: `anthropic.types.messages.batch_create_params`, and
Anthropic's documentation for the form of custom ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from django.conf import settings
from django.utils import timezone

from apps.batches import batch_rows
from apps.batches.access import access_batch, beyond, insist_on_keeping, page_of, visible_batches
from apps.batches.batch_endpoints import headers_of_lines
from apps.batches.file_endpoints import content_answer
from apps.batches.file_fields import Listing, read_limit
from apps.batches.input_lines import MAX_LINES, find_wrong_flag
from apps.batches.line_call import MESSAGES
from apps.batches.models import Batch, BatchFormat, BatchStatus, FilePurpose, LineOutcome, StoredFile
from apps.batches.retention import delete_files, remove_batches
from apps.batches.stored_files import FileOwner, FileWriter
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.anthropic import CLIENT as ANTHROPIC
from apps.gateway.dialects.reading.fields import read_json
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import ApiError, InvalidRequest, NotFound
from apps.kernel.postgres import database
from apps.responses.items import last_of
from apps.responses.retention import expiry_of

_CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KNOWN: Final = frozenset({"requests", "user_profile_id"})
# Requests are read one by one: each has the bounds of a body of its own.
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NOTHING: Final = msgspec.Raw(b"null")


def read_requests(body: bytes) -> tuple[int, bytes]:
    """Return how many requests a body has, and all of them as the lines of an input.

    Raises InvalidRequest naming the field.
    """
    try:
        given = _MEMBERS.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InvalidRequest("The request body must be a JSON object", code="invalid_json") from None
    for name in given.keys() - _KNOWN:
        raise InvalidRequest(f"{name[:64]}: is no field of a message batch", param=name[:64])
    try:
        entries = _ENTRIES.decode(given.get("requests", _NOTHING))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _wrong("requests", "must be a list of requests") from None
    if not 1 <= len(entries) <= MAX_LINES:
        raise _wrong("requests", f"must be 1 to {MAX_LINES} requests")
    seen: set[str] = set()
    return len(entries), b"\n".join(_read(entry, f"requests.{index}", seen) for index, entry in enumerate(entries))


def _read(entry: msgspec.Raw, place: str, seen: set[str]) -> bytes:
    """Return a request as a line. Raises InvalidRequest naming the field."""
    try:
        members = _MEMBERS.decode(entry)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _wrong(place, "must be an object") from None
    custom_id: Any = msgspec.json.decode(members.get("custom_id", _NOTHING))
    if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
        raise _wrong(f"{place}.custom_id", f"must match {_CUSTOM_ID.pattern}")
    if custom_id in seen:
        raise _wrong(f"{place}.custom_id", "is that of an earlier request")
    seen.add(custom_id)
    # A line has one line: outside of texts a line's end is a blank, and inside there is none.
    params = bytes(members.get("params", _NOTHING)).replace(b"\n", b" ")
    try:
        wrong = find_wrong_flag(read_json(params))
    except InvalidRequest as error:
        said = error.message.removeprefix("The request body ")
        raise InvalidRequest(f"{place}.params: {said}", code=error.code, param=f"{place}.params") from None
    if wrong is not None:
        raise _wrong(f"{place}.params.{wrong}", "must be false in a batch")
    line = {"custom_id": custom_id, "method": "POST", "url": MESSAGES, "body": msgspec.Raw(params)}
    return msgspec.json.encode(line)


def _wrong(place: str, said: str) -> InvalidRequest:
    return InvalidRequest(f"{place}: {said}", param=place)


Record = dict[str, Any]

_USUAL_PAGE, _MAX_PAGE = 20, 1_000
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
            delete_files(StoredFile.objects.filter(pk=file.pk))
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
        limit = read_limit(query, usual=_USUAL_PAGE, most=_MAX_PAGE)
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
    """Cancel a batch: requests in progress are answered, the others are not. A batch that has ended does not change."""

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
        delete_files(StoredFile.objects.filter(pk__in=files, project_id=row.project_id))
        remove_batches([row.pk])
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
