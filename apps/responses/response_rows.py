"""Stored responses and conversations: their rows, and how a response gets there, or to Valkey while PostgreSQL is away.

A response whose end a client has seen is stored, whichever process dies next: the transaction was committed, or Valkey
keeps the response until PostgreSQL is back. Items are appended to a conversation under its lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import structlog
from django.db import DatabaseError, transaction
from django.db.models import F
from django.utils import timezone
from redis.exceptions import RedisError

from apps.kernel.errors import Overloaded
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import decrypt_json, encrypt_bytes, encrypt_json
from apps.kernel.valkey.redis import LuaScript, client
from apps.responses.items import Item, ids_of, is_reference, with_ids
from apps.responses.models import Conversation, ConversationItem, StoredResponse
from apps.responses.retention import count_bytes, expiry_of

if TYPE_CHECKING:
    # Loaded with all that answers requests, which a worker needs only for batches.
    from apps.gateway.access.policy import Policy

Record = dict[str, Any]


class ResponseDraft(msgspec.Struct, kw_only=True):
    """A response that is to be stored: all of its row but how long it is kept. Its content is encrypted already."""

    id: str
    created_at: datetime
    organization_id: UUID
    project_id: UUID
    api_key_id: UUID
    previous_id: str | None
    conversation_id: str | None
    status: str
    background: bool
    streamed: bool
    sealed_input: str
    sealed_response: str
    item_ids: list[str]
    size: int
    context_size: int
    # Items for the conversation: id, encrypted item and size of each.
    conversation_items: list[tuple[str, str, int]] = []


class EncryptedOutcome(msgspec.Struct, frozen=True):
    """The changes to a response's row at its end."""

    status: str
    sealed_response: str
    item_ids: list[str]
    size: int
    context_size: int


def draft_of(
    policy: Policy,
    response: Record,
    new_items: list[Item],
    *,
    previous_id: str | None = None,
    conversation_id: str | None = None,
    background: bool = False,
    streamed: bool = False,
) -> ResponseDraft:
    """Return a response and what was new in its input, ready to be stored."""
    identifier, project_id = str(response["id"]), policy.project_id
    written_input = msgspec.json.encode(new_items)
    outcome = encrypt_outcome(project_id, response, new_items, len(written_input))
    return ResponseDraft(
        id=identifier,
        created_at=datetime.fromtimestamp(float(response.get("created_at") or 0) or timezone.now().timestamp(), UTC),
        organization_id=policy.organization_id,
        project_id=project_id,
        api_key_id=policy.api_key_id,
        previous_id=previous_id,
        conversation_id=conversation_id,
        status=outcome.status,
        background=background,
        streamed=streamed,
        sealed_input=encrypt_bytes(written_input, project_id, input_place(identifier)),
        sealed_response=outcome.sealed_response,
        item_ids=outcome.item_ids,
        size=outcome.size,
        context_size=outcome.context_size,
    )


def encrypt_outcome(project_id: UUID, response: Record, new_items: list[Item], input_size: int) -> EncryptedOutcome:
    """Return what a row says of a response as it is now, with so many bytes of new input."""
    written, output = msgspec.json.encode(response), output_of(response)
    return EncryptedOutcome(
        status=str(response["status"]),
        sealed_response=encrypt_bytes(written, project_id, response_place(str(response["id"]))),
        item_ids=ids_of([*(item for item in new_items if not is_reference(item)), *output]),
        size=input_size + len(written),
        context_size=input_size + len(msgspec.json.encode(output)),
    )


def encrypt_for_conversation(project_id: UUID, conversation_id: str, items: list[Item]) -> list[tuple[str, str, int]]:
    """Return items as a conversation keeps them: id, encrypted item and size of each."""
    place = conversation_place(conversation_id)
    return [(item["id"], encrypt_json(item, project_id, place), len(msgspec.json.encode(item))) for item in items]


def row_of(draft: ResponseDraft) -> StoredResponse:
    """Return the row of a draft, kept for as long as its organization keeps content."""
    columns = {name: getattr(draft, name) for name in draft.__struct_fields__ if name != "conversation_items"}
    # From now, and not from when it was made: it may have waited.
    return StoredResponse(**columns, expires_at=expiry_of(draft.organization_id, timezone.now()))


def response_of(row: StoredResponse) -> Record:
    """Return the response object. Raises UnreadableSecretError."""
    response: Record = decrypt_json(row.sealed_response, row.project_id, response_place(row.id))
    return response


def input_of(row: StoredResponse) -> list[Item]:
    """Return what was new in a response's input, references as they were written. Raises UnreadableSecretError."""
    items: list[Item] = decrypt_json(row.sealed_input, row.project_id, input_place(row.id))
    return items


def output_of(response: Record) -> list[Item]:
    """Return the items that a response added, each with an id."""
    output = response.get("output")
    return with_ids(output) if isinstance(output, list) else []


def input_place(response_id: str) -> str:
    """Return the name under which a response's input is encrypted."""
    return f"response:{response_id}:input"


def response_place(response_id: str) -> str:
    """Return the name under which a response is encrypted."""
    return f"response:{response_id}:response"


def conversation_place(conversation_id: str) -> str:
    """Return the name under which items and metadata of a conversation are encrypted."""
    return f"conversation:{conversation_id}"


def append(project_id: UUID, conversation_id: str, sealed: Sequence[tuple[str, str, int]]) -> None:
    """Append encrypted items (id, item, size) inside the caller's transaction, those that are not there yet.

    A conversation that is gone by now takes none. Being used it lives on.
    """
    row = Conversation.objects.select_for_update().filter(pk=conversation_id, project_id=project_id).first()
    if row is None:
        return
    ids = [item_id for item_id, _, _ in sealed]
    known = set(ConversationItem.objects.filter(conversation=row, item_id__in=ids).values_list("item_id", flat=True))
    new = {item_id: (item, size) for item_id, item, size in sealed if item_id not in known}
    expires_at = expiry_of(row.organization_id, timezone.now())
    ConversationItem.objects.bulk_create(
        ConversationItem(
            conversation=row,
            position=row.next_position + offset,
            item_id=item_id,
            expires_at=expires_at,
            organization_id=row.organization_id,
            project_id=project_id,
            sealed_item=item,
            size=size,
        )
        for offset, (item_id, (item, size)) in enumerate(new.items())
    )
    Conversation.objects.filter(pk=row.pk).update(next_position=F("next_position") + len(new), expires_at=expires_at)


log = structlog.get_logger(__name__)

# Ids of responses set aside, and their lifetime in seconds: PostgreSQL is back before.
_ASIDE, _ASIDE_LASTS = "responses:aside", 86_400
_READ = LuaScript("return redis.call('GET', KEYS[1])")
# Drafts stored by one run.
_BATCH = 500
# Bytes put aside by organization, and in all under the empty name: admission is in the same memory.
_ASIDE_BYTES = "responses:aside-bytes"
MAX_ASIDE, MAX_ASIDE_IN_ALL = 16 * 1024 * 1024, 256 * 1024 * 1024


def store(draft: ResponseDraft) -> None:
    """Store a response, once however often it is asked for.

    Raises RedisError when neither store takes it, Overloaded when too much waits for PostgreSQL already.
    """
    try:
        database.write(partial(_insert, draft))
    except DatabaseError as error:
        log.warning("responses.put_aside", response=draft.id, error=type(error).__name__)
        _put_aside(draft)
    count_bytes(draft.organization_id, draft.size)


def find_aside(project_id: UUID, response_id: str) -> StoredResponse | None:
    """Return a response of the project that waits for PostgreSQL; None if Valkey does not answer."""
    try:
        data = _READ.run_batched([_place(response_id)], [])
    except RedisError as error:
        log.warning("responses.aside_not_read", error=type(error).__name__)
        return None
    draft = None if data is None else msgspec.json.decode(data, type=ResponseDraft)
    return row_of(draft) if draft is not None and draft.project_id == project_id else None


def discard_aside(response_id: str) -> bool:
    """Forget a response that waits; tell whether there was one. Raises RedisError."""
    was_aside = bool(client().srem(_ASIDE, response_id))
    data = client().getdel(_place(response_id))
    if not was_aside:
        return data is not None
    if data is not None:
        size = len(str(data).encode())
        _count_aside(msgspec.json.decode(data, type=ResponseDraft).organization_id, -size)
    if not client().exists(_ASIDE):
        # Some may have expired uncounted: nothing is left.
        client().delete(_ASIDE_BYTES)
    return data is not None


def bring_in() -> int:
    """Store the responses set aside; return how many. Raises DatabaseError and RedisError; the next run continues."""
    brought = 0
    for response_id in client().srandmember(_ASIDE, _BATCH) or ():
        data = client().get(_place(str(response_id)))
        if data is not None:
            _insert(msgspec.json.decode(data, type=ResponseDraft))
            brought += 1
        discard_aside(str(response_id))
    return brought


def _insert(draft: ResponseDraft) -> None:
    with transaction.atomic():
        made = StoredResponse.objects.bulk_create([row_of(draft)], ignore_conflicts=True)
        if draft.conversation_id is not None and made:
            append(draft.project_id, draft.conversation_id, draft.conversation_items)


def _put_aside(draft: ResponseDraft) -> None:
    data = msgspec.json.encode(draft)
    own, every = _count_aside(draft.organization_id, len(data))
    if own > MAX_ASIDE or every > MAX_ASIDE_IN_ALL:
        _count_aside(draft.organization_id, -len(data))
        raise Overloaded("Too many responses wait to be stored; try again shortly")
    client().set(_place(draft.id), data, ex=_ASIDE_LASTS)
    client().sadd(_ASIDE, draft.id)


def _count_aside(organization_id: UUID, size: int) -> tuple[int, int]:
    """Count bytes that are put aside, or no longer; return the organization's and those of all."""
    with client().pipeline(transaction=False) as pipe:
        pipe.hincrby(_ASIDE_BYTES, organization_id.hex, size)
        pipe.hincrby(_ASIDE_BYTES, "", size)
        pipe.expire(_ASIDE_BYTES, _ASIDE_LASTS)
        own, every, _ = pipe.execute()
    return int(own), int(every)


def _place(response_id: str) -> str:
    return f"{_ASIDE}:{response_id}"
