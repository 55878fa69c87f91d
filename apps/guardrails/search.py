"""Search and counts of violations, with cursor pagination; an index answers every question.

Each filter has an index.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self
from uuid import UUID

from django.db.models import Count, Q

from apps.guardrails.models import Violation

Taken = Violation.ActionTaken
# Enforced actions; actions of rules in observe mode are listed by their own name.
ENFORCED_ACTIONS = (Taken.BLOCKED, Taken.NEUTRALIZED, Taken.REDACTED, Taken.WARNED)
# Microseconds since 1970 in eight bytes, of which the first is empty until the year 4253, then the id: in 32 letters.
CURSOR_PATTERN = r"A[A-P][A-Za-z0-9_-]{30}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


class ViolationCursor(NamedTuple):
    """The cursor of a violation: its time, and its id for equal times."""

    moment: datetime
    id: UUID

    @classmethod
    def of(cls, violation: Violation) -> Self:
        """Return where it stands."""
        return cls(violation.created_at, violation.id)

    @classmethod
    def read(cls, cursor: str) -> Self:
        """Return the place that a cursor stands for. Raises ValueError for anything that is not one."""
        if not re.fullmatch(CURSOR_PATTERN, cursor):
            raise ValueError(cursor)
        raw = urlsafe_b64decode(cursor)
        return cls(_EPOCH + int.from_bytes(raw[:8], "big") * _TICK, UUID(bytes=raw[8:]))

    def write(self) -> str:
        """Return the cursor of what comes after it."""
        return urlsafe_b64encode(((self.moment - _EPOCH) // _TICK).to_bytes(8, "big") + self.id.bytes).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationFilters:
    """A filter of violations; None matches all. `start` and `end` are included."""

    action_taken: str | None = None
    rule_id: str | None = None
    start: datetime | None = None
    end: datetime | None = None


def find_page(
    organization_id: UUID, filters: ViolationFilters, *, count: int, after: ViolationCursor | None
) -> list[Violation]:
    """Return at most `count` violations, newest first: those that come after a place.

    Each kind of action is one walk through an index, cut short; what they find is merged.
    """
    wanted = Q(organization_id=organization_id) & _conditions_of(filters, after)
    kinds = ENFORCED_ACTIONS if filters.action_taken is None else (filters.action_taken,)
    walks = [
        Violation.objects.filter(wanted, action_taken=kind).order_by("-created_at", "-id")[:count] for kind in kinds
    ]
    if len(walks) > 1:
        walks = [walks[0].union(*walks[1:], all=True).order_by("-created_at", "-id")[:count]]
    return list(walks[0])


def count_since(organization_id: UUID, since: datetime) -> dict[str, int]:
    """Return how many violations there were of each kind of action, zeros included."""
    # Naming every kind lets the index be read from `since` on in each of them.
    rows = Violation.objects.filter(
        organization_id=organization_id, action_taken__in=list(Taken), created_at__gte=since
    )
    counted = dict(rows.values_list("action_taken").annotate(Count("id")).order_by())
    return {kind.value: counted.get(kind.value, 0) for kind in Taken}


def _conditions_of(filters: ViolationFilters, after: ViolationCursor | None) -> Q:
    wanted = Q()
    if filters.rule_id is not None:
        wanted &= Q(rule_id=filters.rule_id)
    if filters.start is not None:
        wanted &= Q(created_at__gte=filters.start)
    if filters.end is not None:
        wanted &= Q(created_at__lte=filters.end)
    if after is not None:
        wanted &= Q(created_at__lte=after.moment) & ~Q(created_at=after.moment, id__gte=after.id)
    return wanted
