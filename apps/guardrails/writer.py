"""The only writer of violations: each once, however often a record is settled.

Knows how a batch gets into the table. Must never know where violations come from.
"""

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
    """A request that rules found something in: its log's id, whose it is, and what was asked of which model."""

    log_id: UUID
    organization_id: UUID
    api_key_id: UUID
    model: str
    noted: tuple[ViolationDraft, ...]


def write(requests: Iterable[ScreenedRequest]) -> int:
    """Write what was found, inside the caller's transaction; return how much there was. Of organizations that are
    deleted nothing is written. Raises DatabaseError."""
    found = list(requests)
    if not found:
        return 0
    living = Organization.objects.exclude(status=Organization.Status.DELETED)
    known = set(living.filter(id__in={one.organization_id for one in found}).values_list("id", flat=True))
    rows = [row for one in found if one.organization_id in known for row in _rows_of(one)]
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
