"""Idempotent writer of violations: each is stored once, however often its record is settled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from apps.guardrails.models import Violation
from apps.guardrails.scanning.violations import ViolationDraft
from apps.kernel.ids import time_of
from apps.organizations.models import Organization


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
