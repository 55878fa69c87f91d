"""Stored responses: written to PostgreSQL before a client sees the end of its answer, to Valkey while that is away.

A response whose end a client has seen is stored, whichever process dies next: the transaction was committed, or Valkey
keeps the response until PostgreSQL is back.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

import msgspec
import structlog
from django.db import DatabaseError, transaction
from redis.exceptions import RedisError

from apps.kernel.errors import Overloaded
from apps.kernel.postgres import database
from apps.kernel.valkey.redis import LuaScript, client
from apps.responses import response_rows
from apps.responses.models import StoredResponse
from apps.responses.response_rows import ResponseDraft, row_of
from apps.responses.retention import count_bytes

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
            response_rows.append(draft.project_id, draft.conversation_id, draft.conversation_items)


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
