"""Access to stored state: an API key reaches its own project's, as long as the organization keeps content.

Anything else gets the same error as an object that does not exist. Access is never wider than that of the caller's
key.
"""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError
from django.db.models import QuerySet
from django.utils import timezone

from apps.gateway.access.policy import Policy
from apps.kernel.postgres import database
from apps.responses import public_ids
from apps.responses.models import Conversation, StoredResponse
from apps.responses.public_ids import is_own_id
from apps.responses.response_rows import find_aside
from apps.responses.retention import keeps


def visible_responses(policy: Policy) -> QuerySet[StoredResponse]:
    """Return the responses that a caller reaches."""
    if not keeps(policy):
        return StoredResponse.objects.none()
    return StoredResponse.objects.filter(project_id=policy.project_id, expires_at__gt=timezone.now())


def visible_conversations(policy: Policy) -> QuerySet[Conversation]:
    """Return the conversations that a caller reaches."""
    if not keeps(policy):
        return Conversation.objects.none()
    return Conversation.objects.filter(project_id=policy.project_id, expires_at__gt=timezone.now())


def find_response(policy: Policy, response_id: str) -> StoredResponse | None:
    """Return a response, wherever it lies; None for what the caller does not reach. Raises DatabaseError."""
    if not (keeps(policy) and is_own_id(response_id)):
        return None
    try:
        row = database.read(visible_responses(policy).filter(pk=response_id).first)
    except DatabaseError:
        if (row := find_aside(policy.project_id, response_id)) is None:
            raise
    return row or find_aside(policy.project_id, response_id)


def access_response(policy: Policy, response_id: str) -> StoredResponse:
    """Return a response. Raises NotFound, DatabaseError."""
    row = find_response(policy, response_id)
    if row is None:
        raise public_ids.no_response(response_id)
    return row


def access_conversation(
    policy: Policy, conversation_id: Any, *, param: str | None = None, lock: bool = False
) -> Conversation:
    """Return a conversation, locked until the transaction ends if that is asked for. Raises NotFound."""
    rows = visible_conversations(policy)
    if lock:
        rows = rows.select_for_update()
    row = rows.filter(pk=conversation_id).first() if is_own_id(conversation_id) else None
    if row is None:
        raise public_ids.no_conversation(str(conversation_id), param)
    return row
