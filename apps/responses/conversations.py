"""Conversations: objects of the API made of rows, within the caller's transaction.

Each function raises NotFound for objects that `access.py` does not let the caller reach.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone

from apps.gateway.access.policy import Policy
from apps.kernel.postgres import database
from apps.kernel.postgres.rows import delete_piece
from apps.kernel.secrets.encryption import decrypt_json, encrypt_json
from apps.responses import public_ids, response_rows
from apps.responses.access import access_conversation
from apps.responses.items import Item, ItemPage, list_object, listed, no_cursor
from apps.responses.models import Conversation, ConversationItem
from apps.responses.public_ids import is_public_id, new_public_id
from apps.responses.response_rows import conversation_place, encrypt_for_conversation
from apps.responses.retention import BATCH, count_bytes, expiry_of

Record = dict[str, Any]
Metadata = dict[str, str]

# Bytes that a conversation takes up before anything is in it.
_ROW_BYTES = 512


@transaction.atomic
def create(policy: Policy, metadata: Metadata, items: list[Item]) -> Record:
    """Create a conversation with items; return it."""
    identifier, now = new_public_id("conv"), timezone.now()
    row = Conversation.objects.create(
        id=identifier,
        created_at=now,
        expires_at=expiry_of(policy.organization_id, now),
        organization_id=policy.organization_id,
        project_id=policy.project_id,
        **_metadata_columns(policy, identifier, metadata),
    )
    count_bytes(policy.organization_id, row.size)
    _append(policy, row, items)
    return _object(row, metadata)


def retrieve(policy: Policy, conversation_id: str) -> Record:
    """Return a conversation."""
    row = access_conversation(policy, conversation_id)
    return _object(row, _metadata_of(row))


@transaction.atomic
def update(policy: Policy, conversation_id: str, metadata: Metadata) -> Record:
    """Replace a conversation's metadata; return it."""
    row = access_conversation(policy, conversation_id, lock=True)
    for name, value in _metadata_columns(policy, row.id, metadata).items():
        setattr(row, name, value)
    row.save(update_fields=["sealed_metadata", "size"])
    return _object(row, metadata)


def delete(policy: Policy, conversation_id: str) -> None:
    """Delete a conversation: it is invisible at once, then its items go in pieces. Raises NotFound, DatabaseError.

    `retention` completes an interrupted deletion.
    """

    def hide() -> None:
        row = access_conversation(policy, conversation_id, lock=True)
        row.expires_at = timezone.now()
        row.save(update_fields=["expires_at"])

    database.write(hide)
    items = ConversationItem.objects.filter(conversation_id=conversation_id)
    while database.write(partial(delete_piece, items, BATCH)):
        pass
    database.write(Conversation.objects.filter(pk=conversation_id).delete)


@transaction.atomic
def add_items(policy: Policy, conversation_id: str, items: list[Item]) -> list[Item]:
    """Append items; return them."""
    row = access_conversation(policy, conversation_id, lock=True)
    _append(policy, row, items)
    return items


def list_items(policy: Policy, conversation_id: str, page: ItemPage) -> Record:
    """Return a page of a conversation's items. Raises InvalidRequest for a cursor that is no item of it."""
    row = access_conversation(policy, conversation_id)
    rows = ConversationItem.objects.filter(conversation=row, expires_at__gt=timezone.now())
    ascending = page.order == "asc"
    if page.after is not None:
        cursor = rows.filter(item_id=page.after).values_list("position", flat=True).first()
        if cursor is None:
            raise no_cursor()
        rows = rows.filter(position__gt=cursor) if ascending else rows.filter(position__lt=cursor)
    found = list(rows.order_by("position" if ascending else "-position")[: page.limit + 1])
    items = [_open_item(item) for item in found[: page.limit]]
    return list_object(listed(items, page.include), has_more=len(found) > page.limit)


def retrieve_item(policy: Policy, conversation_id: str, item_id: str) -> Item:
    """Return an item of a conversation."""
    return _open_item(_access_item(policy, conversation_id, item_id))


@transaction.atomic
def delete_item(policy: Policy, conversation_id: str, item_id: str) -> Record:
    """Delete an item of a conversation; return the conversation."""
    _access_item(policy, conversation_id, item_id).delete()
    return retrieve(policy, conversation_id)


def _append(policy: Policy, row: Conversation, items: list[Item]) -> None:
    if items:
        sealed = encrypt_for_conversation(policy.project_id, row.id, items)
        response_rows.append(policy.project_id, row.id, sealed)
        count_bytes(policy.organization_id, sum(size for _, _, size in sealed))


def _access_item(policy: Policy, conversation_id: str, item_id: str) -> ConversationItem:
    row = access_conversation(policy, conversation_id)
    rows = ConversationItem.objects.filter(conversation=row, expires_at__gt=timezone.now())
    item = rows.filter(item_id=item_id).first() if is_public_id(item_id) else None
    if item is None:
        raise public_ids.no_conversation_item(item_id)
    return item


def _open_item(row: ConversationItem) -> Item:
    item: Item = decrypt_json(row.sealed_item, row.project_id, conversation_place(row.conversation_id))
    return item


def _metadata_columns(policy: Policy, conversation_id: str, metadata: Metadata) -> dict[str, Any]:
    sealed = encrypt_json(metadata, policy.project_id, conversation_place(conversation_id))
    return {"sealed_metadata": sealed, "size": _ROW_BYTES + len(msgspec.json.encode(metadata))}


def _metadata_of(row: Conversation) -> Metadata:
    metadata: Metadata = decrypt_json(row.sealed_metadata, row.project_id, conversation_place(row.id))
    return metadata


def _object(row: Conversation, metadata: Metadata) -> Record:
    created_at = int(row.created_at.timestamp())
    return {"id": row.id, "object": "conversation", "created_at": created_at, "metadata": metadata}
