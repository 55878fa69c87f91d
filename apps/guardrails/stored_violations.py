"""Stored violations: each is written once, however often its record is settled; searched and counted page by page,
where an index answers every question; and kept as long as the plan keeps the logs that they belong to."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q

from apps.guardrails.findings.violation_draft import ViolationDraft
from apps.guardrails.models import Violation
from apps.kernel.ids import time_of
from apps.kernel.rest.pages import Page
from apps.organizations.models import Organization
from apps.organizations.plans import PLANS


@dataclass(frozen=True, slots=True)
class ScreenedRequest:
    """A request with findings: the id of its log row, its owner, its model and its task."""

    log_id: UUID
    organization_id: UUID
    api_key_id: UUID
    model: str
    noted: tuple[ViolationDraft, ...]


def write(requests: Iterable[ScreenedRequest]) -> int:
    """Write the findings, inside the caller's transaction; return how many. Nothing is written for deleted
    organizations. Raises DatabaseError."""
    screened = list(requests)
    if not screened:
        return 0
    living = Organization.objects.exclude(status=Organization.Status.DELETED)
    organizations = {request.organization_id for request in screened}
    kept = set(living.filter(id__in=organizations).values_list("id", flat=True))
    rows = [row for request in screened if request.organization_id in kept for row in _rows_of(request)]
    rows.sort(key=lambda row: row.id)
    return len(Violation.objects.bulk_create(rows, ignore_conflicts=True))


def id_of(log_id: UUID, index: int) -> UUID:
    """Return the id of a request's violation, always the same: of the request's own time, and random beyond it."""
    beyond = int.from_bytes(sha256(log_id.bytes + index.to_bytes(4)).digest()[:8])
    return UUID(int=(log_id.int >> 64 << 64) | (0b10 << 62) | (beyond >> 2))


def _rows_of(request: ScreenedRequest) -> Iterable[Violation]:
    for index, noted in enumerate(request.noted):
        yield Violation(
            id=id_of(request.log_id, index),
            organization_id=request.organization_id,
            log_id=request.log_id,
            api_key_id=request.api_key_id,
            rule_id=noted.rule_id[:60],
            rule_name=noted.rule_name[:255],
            category=noted.category[:40],
            action_taken=noted.action_taken,
            matched_pattern=noted.matched_pattern,
            matched_content=noted.matched_content,
            content_hash=noted.content_hash,
            model=request.model[:255],
            created_at=time_of(request.log_id),
        )


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


# Filters of a list, and the lookup of each; `start_date` and `end_date` are included.
_LOOKUPS = {"rule_id": "rule_id", "start_date": "created_at__gte", "end_date": "created_at__lte"}


def find_page(organization_id: UUID, query: Mapping[str, Any]) -> Page[Violation]:
    """Return the page of violations that a query (`ViolationsQuery`) asks for, newest first.

    Each kind of action is one walk through an index, cut short; what they find is merged.
    """
    given = {lookup: query[name] for name, lookup in _LOOKUPS.items() if query.get(name) is not None}
    wanted = Q(organization_id=organization_id, **given)
    after: ViolationCursor | None = query.get("cursor")
    if after is not None:
        wanted &= Q(created_at__lte=after.moment) & ~Q(created_at=after.moment, id__gte=after.id)
    kinds = [query["action_taken"]] if query.get("action_taken") else ENFORCED_ACTIONS
    limit = query["limit"]
    # One more tells whether there are more.
    walks = [
        Violation.objects.filter(wanted, action_taken=kind).order_by("-created_at", "-id")[: limit + 1]
        for kind in kinds
    ]
    if len(walks) > 1:
        walks = [walks[0].union(*walks[1:], all=True).order_by("-created_at", "-id")[: limit + 1]]
    rows = list(walks[0])
    return Page(rows[:limit], limit, ViolationCursor.of(rows[limit - 1]).write() if len(rows) > limit else None)


def count_since(organization_id: UUID, since: datetime) -> dict[str, int]:
    """Return how many violations there were of each kind of action, zeros included."""
    # Naming every kind lets the index be read from `since` on in each of them.
    rows = Violation.objects.filter(
        organization_id=organization_id, action_taken__in=list(Taken), created_at__gte=since
    )
    counted = dict(rows.values_list("action_taken").annotate(Count("id")).order_by())
    return {kind.value: counted.get(kind.value, 0) for kind in Taken}


# Rows that retention removes by one statement: small enough not to block others.
BATCH = 5_000


def expire(now: datetime) -> int:
    """Remove what each plan keeps no longer; return how many."""
    return sum(_delete_before(now - timedelta(days=limits.log_days), plan) for plan, limits in PLANS.items())


def _delete_before(moment: datetime, plan: str) -> int:
    deleted = 0
    while (rows := _delete_batch(moment, plan)) == BATCH:
        deleted += rows
    return deleted + rows


def _delete_batch(moment: datetime, plan: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM guardrails_violation WHERE ctid = ANY(ARRAY(
                SELECT row.ctid FROM guardrails_violation row
                JOIN organizations_organization organization ON organization.id = row.organization_id
                WHERE organization.plan = %s AND row.created_at < %s LIMIT %s
            ))
            """,
            [plan, moment, BATCH],
        )
        return int(cursor.rowcount)
