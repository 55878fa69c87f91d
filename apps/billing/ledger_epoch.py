"""Ledger epoch: a number that changes when the database is older than before (after a restore or failover).

After a restore, versions are issued a second time, and a copy of a balance from before would win by its version. So
copies carry the epoch too, and copies of another epoch are void (docs/adr/0085).
"""

from __future__ import annotations

import time

import structlog
from django.db import connection, transaction
from django.db.models import Max

from apps.billing.balances import EPOCHS
from apps.billing.models import LedgerEpoch
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from apps.kernel.valkey.shards import ask_each

log = structlog.get_logger(__name__)


def read_epoch() -> int:
    """Return the database's epoch. Raises DatabaseError."""
    return int(LedgerEpoch.objects.aggregate(latest=Max("number"))["latest"] or 0)


def read_epochs_in_redis() -> list[int]:
    """Return the current epoch in each shard; 0 if nothing was published. Raises RedisError."""
    return ask_each(lambda shard: int(client().get(EPOCHS[shard]) or 0))


def read_epoch_in_redis() -> int:
    """Return the latest epoch of any shard. Raises RedisError."""
    return max(read_epochs_in_redis())


def begin_epoch(reason: str, *, instead_of: int) -> int:
    """Begin a new epoch in place of `instead_of`, unless another process did; return the current one.

    It is higher than any epoch in database and store. Policies and the catalog came from the same database, so they are
    invalidated as well. Raises DatabaseError, RedisError.
    """
    known = read_epoch_in_redis()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE billing_ledgerepoch IN SHARE ROW EXCLUSIVE MODE")
        if (present := read_epoch()) != instead_of:
            return present
        number = max(present + 1, known + 1, time.time_ns() // 1000)
        LedgerEpoch.objects.create(number=number, reason=reason)
    log.error("ledger.epoch_began", epoch=number, instead_of=instead_of, reason=reason)
    generation.bump_all()
    return number
