"""Rows of conversations: items in the order in which they came, appended under the conversation's lock."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from apps.responses.models import Conversation, ConversationItem
from apps.responses.retention import expiry_of


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
