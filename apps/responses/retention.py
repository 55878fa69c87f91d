"""Retention of stored responses: who keeps any, for how long, how many bytes, and their removal in batches.

Kept is what an organization's retention level lets the log keep (`retain`), for as long as its log is kept and no
longer than 30 days.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import Q, QuerySet, Sum
from redis.exceptions import RedisError

from apps.kernel.postgres import database
from apps.kernel.postgres.rows import delete_in_pieces
from apps.kernel.valkey.redis import client
from apps.logs.retention import visible_to
from apps.organizations.models import Organization, RetentionLevel
from apps.organizations.storage_bounds import max_response_bytes
from apps.responses.models import Conversation, ConversationItem, StoredResponse

if TYPE_CHECKING:
    # Loaded with all that answers requests, which a worker needs only for batches.
    from apps.gateway.access.policy import Policy

log = structlog.get_logger(__name__)

# Source: OpenAI keeps responses for so long.
MAX_LIFETIME: Final = timedelta(days=30)
# Rows removed by one statement: their contents are large.
BATCH: Final = 1_000
# Seconds that the sum of an organization's bytes is trusted, with bytes added meanwhile.
_SUM_LASTS: Final = 600


def keeps(policy: Policy) -> bool:
    """Tell whether responses of this caller may be stored at all."""
    return policy.retention == RetentionLevel.RETAIN


def expiry_of(organization_id: UUID, now: datetime) -> datetime:
    """Return the expiry of a row that is stored now."""
    since = visible_to([organization_id], now).get(organization_id)
    return now + (MAX_LIFETIME if since is None else min(MAX_LIFETIME, now - since))


def has_room(policy: Policy) -> bool:
    """Tell whether an organization may store more; it may while Valkey does not answer. Raises DatabaseError."""
    organization_id = policy.organization_id
    try:
        known = client().get(_bytes_key(organization_id))
        total = database.read(partial(_bytes_of, organization_id)) if known is None else int(known)
        if known is None:
            client().set(_bytes_key(organization_id), total, ex=_SUM_LASTS, nx=True)
    except RedisError as error:
        log.warning("responses.not_counted", error=type(error).__name__)
        return True
    # Below the smallest bound there is no need to ask which one holds.
    if total < min(settings.STORED_BYTES_WITHOUT_CREDITS, settings.STORED_BYTES_PER_ORGANIZATION):
        return True
    return total < database.read(partial(max_response_bytes, policy.plan, organization_id))


def count_bytes(organization_id: UUID, size: int) -> None:
    """Take note of bytes that were stored."""
    key = _bytes_key(organization_id)
    try:
        if client().exists(key):
            client().incrby(key, size)
    except RedisError as error:
        log.warning("responses.not_counted", error=type(error).__name__)


def purge(now: datetime) -> int:
    """Remove expired rows, and rows beyond their organization's current retention; return how many.

    An interrupted run is completed by the next.
    """
    removed = sum(delete_in_pieces(rows, BATCH) for rows in _expired(now))
    organizations = _organizations()
    # Rows in progress when an organization was deleted arrived after its erasure.
    kept = Organization.objects.filter(id__in=organizations, retention_level=RetentionLevel.RETAIN)
    keeping = set(kept.exclude(status=Organization.Status.DELETED).values_list("id", flat=True))
    for organization_id in organizations - keeping:
        removed += erase_organization(organization_id)
    # A plan with fewer days, since.
    for organization_id, since in visible_to(keeping, now).items():
        rows = StoredResponse.objects.filter(organization_id=organization_id, created_at__lt=since)
        removed += delete_in_pieces(rows, BATCH)
    return removed


def erase_organization(organization_id: UUID) -> int:
    """Remove all that is stored of an organization; return how many rows."""
    return sum(
        delete_in_pieces(kind.objects.filter(organization_id=organization_id), BATCH)
        for kind in (StoredResponse, ConversationItem, Conversation)
    )


def _expired(now: datetime) -> list[QuerySet[StoredResponse] | QuerySet[ConversationItem] | QuerySet[Conversation]]:
    return [
        StoredResponse.objects.filter(expires_at__lte=now),
        ConversationItem.objects.filter(Q(expires_at__lte=now) | Q(conversation__expires_at__lte=now)),
        Conversation.objects.filter(expires_at__lte=now),
    ]


def _organizations() -> set[UUID]:
    found: set[UUID] = set()
    for kind in (StoredResponse, Conversation):
        found.update(kind.objects.order_by().values_list("organization_id", flat=True).distinct())
    return found


def _bytes_of(organization_id: UUID) -> int:
    total = 0
    for kind in (StoredResponse, Conversation, ConversationItem):
        rows = kind.objects.filter(organization_id=organization_id)
        total += rows.aggregate(total=Sum("size"))["total"] or 0
    return total


def _bytes_key(organization_id: UUID) -> str:
    return f"responses:bytes:{organization_id}"
