"""Leases of lines: which process answers which line of a batch, and who takes over when it dies.

All in PostgreSQL and by its clock: a line is claimed, renewed, put off and ended by whoever holds its row. Must never
know how a line is answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F
from django.db.models.functions import Greatest, Now

from apps.batches.models import Batch, BatchLine, BatchStatus, LineOutcome
from apps.kernel.ids import new_id
from apps.organizations.models import Organization, RetentionLevel

# Times that a line is begun before it is given up: one that kills its worker must not kill them all.
MOST_ATTEMPTS: Final = 5


def claimable_batches() -> list[Batch]:
    """Return the batches whose lines may be begun now, the oldest first: of organizations that keep content."""
    keeping = Organization.objects.filter(retention_level=RetentionLevel.RETAIN)
    keeping = keeping.exclude(status=Organization.Status.DELETED)
    rows = Batch.objects.filter(status=BatchStatus.IN_PROGRESS, paused_until__lte=Now(), expires_at__gt=Now())
    return list(rows.filter(organization_id__in=keeping.values("pk")).order_by("created_at"))


def lines_under_way(organizations: Collection[UUID]) -> Counter[UUID]:
    """Return how many lines of each organization are answered just now, by whomever."""
    held = BatchLine.objects.filter(outcome=LineOutcome.OPEN, lease_until__gt=Now()).exclude(lease_owner="")
    counted = held.filter(batch__organization_id__in=organizations).order_by().values_list("batch__organization_id")
    return Counter(dict(counted.annotate(lines=Count("pk"))))


def claim(batch: Batch, owner: str, most: int, answered_here: Collection[int]) -> list[BatchLine]:
    """Make at most so many lines that nobody answers a process's own; return them in order.

    A line that was begun before keeps the id of its record; a new one gets its id now, which bears the time.
    """
    with transaction.atomic():
        rows = BatchLine.objects.select_for_update(skip_locked=True)
        waiting = rows.filter(batch=batch, outcome=LineOutcome.OPEN, lease_until__lte=Now())
        lines = list(waiting.exclude(pk__in=answered_here).order_by("position")[:most])
        for line in lines:
            line.batch, line.lease_owner = batch, owner
            line.attempts += 1
            line.log_id = line.log_id or new_id()
            line.lease_until = _lease_end()
        BatchLine.objects.bulk_update(lines, ["lease_owner", "lease_until", "attempts", "log_id"])
    return lines


def renew(owner: str, lines: Collection[int]) -> set[int]:
    """Keep a process's leases on what it answers; return those lines that are still its to answer."""
    mine = BatchLine.objects.filter(pk__in=lines, lease_owner=owner, outcome=LineOutcome.OPEN)
    mine.update(lease_until=_lease_end())
    return set(mine.values_list("pk", flat=True))


def end(line: BatchLine, owner: str, outcome: LineOutcome, sealed_result: str) -> bool:
    """Store how a line ended, unless somebody else has it by now or it is gone; tell whether it was.

    Raises DatabaseError.
    """
    mine = BatchLine.objects.filter(pk=line.pk, lease_owner=owner, outcome=LineOutcome.OPEN)
    return bool(mine.update(outcome=outcome, sealed_result=sealed_result, lease_owner=""))


def put_off(line: BatchLine, owner: str, seconds: float, pause: float, *, turned_away: bool = False) -> None:
    """Let a line wait for so many seconds and its whole batch for a pause; it counts as no attempt, and the next one
    has a record of its own.

    `turned_away` tells that a provider refused it for its load, which is counted.
    """
    with transaction.atomic():
        BatchLine.objects.filter(pk=line.pk, lease_owner=owner).update(
            lease_owner="",
            lease_until=Now() + timedelta(seconds=seconds),
            attempts=F("attempts") - 1,
            turned_away=F("turned_away") + int(turned_away),
            log_id=None,
        )
        paused_until = Greatest(F("paused_until"), Now() + timedelta(seconds=pause))
        Batch.objects.filter(pk=line.batch_id).update(paused_until=paused_until)


def hand_over(owner: str) -> None:
    """Let others take over at once what a process has not ended; it counts as no attempt."""
    mine = BatchLine.objects.filter(lease_owner=owner, outcome=LineOutcome.OPEN)
    mine.update(lease_until=Now(), attempts=F("attempts") - 1)


def _lease_end() -> Any:
    return Now() + timedelta(seconds=settings.BACKGROUND_LEASE)
