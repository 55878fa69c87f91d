"""Leases of lines: which process answers which line of a batch, and who takes over when it dies.

All in PostgreSQL and by its clock: the process that holds the lease claims, renews, puts off and ends the line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q
from django.db.models.functions import Greatest, Now
from django.utils import timezone

from apps.batches.batch_rows import end_some_lines
from apps.batches.models import RUNNING_STATUSES, Batch, BatchLine, BatchStatus, LineOutcome, NativeState
from apps.batches.native.parked_lines import give_back
from apps.billing import ledger
from apps.kernel.ids import new_id
from apps.organizations.models import Organization, RetentionLevel

# Times that a line is begun before it is given up: one that kills its worker must not kill them all.
MAX_ATTEMPTS: Final = 5


# Batches whose lines are begun, whatever is known of the lines.
_MAY_BEGIN: Final = Q(status=BatchStatus.IN_PROGRESS, paused_until__lte=Now(), expires_at__gt=Now())


def claimable_batches() -> list[Batch]:
    """Return the batches that have lines to begin now, the oldest first: of organizations that keep content.

    Answers of a provider's batch API are processed even if the batch was cancelled: they have been paid.
    """
    keeping = Organization.objects.filter(retention_level=RetentionLevel.RETAIN)
    keeping = keeping.exclude(status=Organization.Status.DELETED)
    waiting = BatchLine.objects.filter(batch=OuterRef("pk"), outcome=LineOutcome.OPEN, lease_until__lte=Now())
    has_answers = Exists(waiting.filter(native_state=NativeState.ANSWERED))
    has_lines = Exists(waiting.exclude(native_state=NativeState.PARKED))
    rows = Batch.objects.filter(status__in=RUNNING_STATUSES, organization_id__in=keeping.values("pk"))
    return list(rows.filter(_MAY_BEGIN & Q(has_lines) | Q(has_answers)).order_by("created_at"))


def lines_under_way(organizations: Collection[UUID]) -> Counter[UUID]:
    """Return how many lines of each organization are answered just now, by whomever."""
    held = BatchLine.objects.filter(outcome=LineOutcome.OPEN, lease_until__gt=Now()).exclude(lease_owner="")
    counted = held.filter(batch__organization_id__in=organizations).order_by().values_list("batch__organization_id")
    return Counter(dict(counted.annotate(lines=Count("pk"))))


def claim(batch: Batch, owner: str, most: int, answered_here: Collection[int]) -> list[BatchLine]:
    """Claim at most `most` waiting lines for a process; return them in order.

    A line that was begun before keeps the id of its record; a new one gets its id now, which bears the time.
    """
    with transaction.atomic():
        rows = BatchLine.objects.select_for_update(skip_locked=True)
        waiting = rows.filter(batch=batch, outcome=LineOutcome.OPEN, lease_until__lte=Now())
        waiting = waiting.exclude(native_state=NativeState.PARKED)
        if not Batch.objects.filter(_MAY_BEGIN, pk=batch.pk).exists():
            waiting = waiting.filter(native_state=NativeState.ANSWERED)
        lines = list(waiting.exclude(pk__in=answered_here).order_by("position")[:most])
        for line in lines:
            line.batch, line.lease_owner = batch, owner
            line.is_log_id_inherited = line.log_id is not None and line.native_state != NativeState.ANSWERED
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


def end(line: BatchLine, owner: str, outcome: LineOutcome, sealed_result: str, *, is_held: bool = False) -> bool:
    """Store a line's outcome if it is still the owner's; return whether it was.

    `is_held`: credits are held for it, and no charge replaces the hold. Raises DatabaseError.
    """
    with transaction.atomic():
        mine = BatchLine.objects.filter(pk=line.pk, lease_owner=owner, outcome=LineOutcome.OPEN)
        was_mine = bool(mine.update(outcome=outcome, sealed_result=sealed_result, lease_owner=""))
        if was_mine and is_held and line.log_id is not None:
            give_back([line.log_id])
    return was_mine


def put_off(line: BatchLine, owner: str, seconds: float, pause: float, *, turned_away: bool = False) -> None:
    """Let a line wait for so many seconds and its whole batch for a pause; it counts as no attempt, and the next one
    has a record of its own.

    `turned_away` tells that a provider refused it for its load, which is counted; where that was its batch API, it is
    asked no more. A line that it has answered keeps its record, which has a hold; so does one that an earlier owner
    may have been charged for before it was lost.
    """
    with transaction.atomic():
        if turned_away:
            # Without a charge, the row of this attempt would make a later answer free.
            keeps_record = line.is_log_id_inherited and line.log_id is not None and ledger.is_charged(line.log_id)
        else:
            keeps_record = line.is_log_id_inherited or line.native_state == NativeState.ANSWERED
        mine = BatchLine.objects.filter(pk=line.pk, lease_owner=owner)
        was_mine = mine.update(
            lease_owner="",
            lease_until=Now() + timedelta(seconds=seconds),
            attempts=F("attempts") - 1,
            turned_away=F("turned_away") + int(turned_away),
            **({} if keeps_record else {"log_id": None}),
            **({"native_state": NativeState.DECLINED, "sealed_native": ""} if turned_away else {}),
        )
        if was_mine and turned_away and line.log_id is not None:
            give_back([line.log_id])
        paused_until = Greatest(F("paused_until"), Now() + timedelta(seconds=pause))
        Batch.objects.filter(pk=line.batch_id).update(paused_until=paused_until)


def end_some_unpaid(batch: Batch, sealed_refusal: str) -> int:
    """End a piece of the waiting lines of a batch with the same refusal; return how many. Raises DatabaseError."""
    with transaction.atomic():
        running = Batch.objects.select_for_update().filter(pk=batch.pk, status=BatchStatus.IN_PROGRESS)
        row = running.first()
        if row is None:
            return 0
        row.sealed_refusal = sealed_refusal
        row.save(update_fields=["sealed_refusal"])
        return end_some_lines(row, LineOutcome.UNPAID, timezone.now())


def hand_over(owner: str) -> None:
    """Let others take over at once what a process has not ended; it counts as no attempt."""
    mine = BatchLine.objects.filter(lease_owner=owner, outcome=LineOutcome.OPEN)
    mine.update(lease_until=Now(), attempts=F("attempts") - 1)


def _lease_end() -> Any:
    return Now() + timedelta(seconds=settings.BACKGROUND_LEASE)
