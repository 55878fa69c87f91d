"""Purge of old charges and counters of limits: sums stay where a window is open, and are checked as before.

A purged charge is added to the `folded` part of its counters, so that a counter stays the sum of its requests. A
request that is settled after `COUNTED_FOR` counts for no limit: its charge might have been purged, and it would be
counted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import structlog
from django.db import connection
from redis.exceptions import RedisError

from apps.billing import balances
from apps.kernel.money import LARGEST
from apps.kernel.valkey.redis import client
from apps.limits.counters import COUNTED_FOR

log = structlog.get_logger(__name__)

# How long charges are kept, and counters after the end of their window: longer than any request is counted.
KEPT_FOR: Final = COUNTED_FOR + timedelta(days=1)
# Rows purged by one statement: small enough not to block settlement.
MAX_CHARGES, MAX_COUNTERS = 2_000, 5_000


class Purged(NamedTuple):
    """Numbers of purged rows."""

    charges: int
    counters: int


def purge(now: datetime, *, charges: int = MAX_CHARGES, counters: int = MAX_COUNTERS) -> Purged:
    """Purge charges and counters older than `KEPT_FOR`, some of them at a time. An interrupted run is completed by the
    next. Raises DatabaseError."""
    before = now - KEPT_FOR
    return Purged(_repeat(_purge_charges, before, charges), _repeat(_purge_counters, before, counters))


def _repeat(purge_some: Callable[[datetime, int], int], before: datetime, piece: int) -> int:
    purged = 0
    while some := purge_some(before, piece):
        purged += some
    return purged


def _purge_charges(before: datetime, piece: int) -> int:
    """Purge some charges of requests that were admitted before a moment, and add them to their counters.

    Lock order is charges, then counters by id, as in settlement.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH gone AS (
                DELETE FROM limits_limitcharge WHERE reference IN (
                    SELECT reference FROM limits_limitcharge WHERE reference < %s
                    ORDER BY reference LIMIT %s FOR UPDATE SKIP LOCKED
                ) RETURNING counted
            ), sums AS (
                SELECT (item->>0)::uuid AS id, sum((item->>1)::numeric) AS total
                FROM gone, jsonb_array_elements(gone.counted) AS item GROUP BY 1
            ), locked AS (
                SELECT counter.id, sums.total FROM limits_limitcounter counter JOIN sums ON sums.id = counter.id
                ORDER BY counter.id FOR UPDATE OF counter
            ), folded AS (
                UPDATE limits_limitcounter counter SET folded = least(counter.folded + locked.total, %s::numeric)
                FROM locked WHERE counter.id = locked.id RETURNING 1
            ) SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM folded)
            """,
            [_first_id_of(before), piece, LARGEST],
        )
        return int(cursor.fetchone()[0])


def _purge_counters(before: datetime, piece: int) -> int:
    """Purge some counters all of whose charges are purged: of windows that ended before a moment, and those without
    an end of limits that were deleted."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM limits_limitcounter WHERE id IN (
                SELECT id FROM limits_limitcounter counter
                WHERE folded >= used AND (ends_at < %s OR (ends_at IS NULL AND NOT EXISTS (
                    SELECT FROM limits_limit WHERE limits_limit.id = counter.limit_id
                ))) LIMIT %s FOR UPDATE SKIP LOCKED
            ) RETURNING id, organization_id, ends_at IS NULL
            """,
            [before, piece],
        )
        rows = cursor.fetchall()
    # Copies of the others have expired.
    _drop_copies([balances.key("limit", one, organization) for one, organization, is_endless in rows if is_endless])
    return len(rows)


def _drop_copies(names: list[str]) -> None:
    try:
        for name in names:
            client().delete(name)
    except RedisError as error:
        # A copy without a row is never read.
        log.warning("limits.copies_left", count=len(names), error=type(error).__name__)


def _first_id_of(moment: datetime) -> UUID:
    return UUID(int=int(moment.timestamp() * 1000) << 80)
