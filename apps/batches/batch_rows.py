"""Rows of batches: made, cancelled, and opened for those who may see them.

Knows columns and the names under which they are sealed. Must never know how a line is answered.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from apps.batches.models import (
    OPEN_STATUSES,
    RUNNING_STATUSES,
    Batch,
    BatchFormat,
    BatchLine,
    BatchStatus,
    LineOutcome,
    NativeState,
)
from apps.gateway.access.policy import Policy
from apps.kernel.errors import RateLimited
from apps.organizations.models import Project
from apps.responses.encrypted_json import decrypt_json, encrypt_json
from apps.responses.public_ids import new_public_id
from apps.responses.retention import expiry_of

# How long lines may be answered, and how many batches of a project are answered at a time.
WINDOW: Final = timedelta(hours=24)
MOST_OPEN: Final = 100
_PREFIXES: Final = {BatchFormat.OPENAI: "batch", BatchFormat.ANTHROPIC: "msgbatch"}


def create(
    policy: Policy,
    batch_format: BatchFormat,
    *,
    endpoint: str,
    input_file_id: str,
    headers: dict[str, str],
    metadata: dict[str, str] | None = None,
    output_lifetime: int | None = None,
    total: int = 0,
) -> Batch:
    """Store a batch whose input is still to be looked at. Raises RateLimited, DatabaseError."""
    now, identifier = timezone.now(), new_public_id(_PREFIXES[batch_format])
    row = Batch(
        id=identifier,
        format=batch_format,
        organization_id=policy.organization_id,
        project_id=policy.project_id,
        api_key_id=policy.api_key_id,
        endpoint=endpoint,
        status=BatchStatus.VALIDATING,
        created_at=now,
        expires_at=now + WINDOW,
        kept_until=expiry_of(policy.organization_id, now),
        paused_until=now,
        input_file_id=input_file_id,
        output_lifetime=output_lifetime,
        total=total,
        sealed_headers=encrypt_json(headers, policy.project_id, _place(identifier, "headers")),
        sealed_metadata=encrypt_json(metadata or {}, policy.project_id, _place(identifier, "metadata")),
    )
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=policy.project_id)
        if Batch.objects.filter(project_id=policy.project_id, status__in=OPEN_STATUSES).count() >= MOST_OPEN:
            raise RateLimited(
                f"The project has {MOST_OPEN} batches under way; try again when one has ended",
                code="batches_in_progress_exceeded",
                retry_after=60,
            )
        row.save(force_insert=True)
    return row


def cancel(batch_id: str, now: datetime) -> Batch:
    """Cancel a batch that has not ended: lines that nobody answers end at once, others are answered; return the row.

    Raises DatabaseError.
    """
    with transaction.atomic():
        row = Batch.objects.select_for_update().get(pk=batch_id)
        if row.status in (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS) and row.cancelling_at is None:
            row.cancelling_at = now
            if row.status == BatchStatus.IN_PROGRESS:
                row.status = BatchStatus.CANCELLING
                end_open_lines(row, LineOutcome.CANCELLED, now)
            # One whose input is still to be looked at gets its lines first, so that each has its result.
            row.save(update_fields=["status", "cancelling_at"])
    return row


def status_of(row: Batch) -> BatchStatus:
    """Return how a batch stands, as its client sees it."""
    is_cancelled = row.status == BatchStatus.VALIDATING and row.cancelling_at is not None
    return BatchStatus.CANCELLING if is_cancelled else BatchStatus(row.status)


def end_open_lines(row: Batch, outcome: LineOutcome, now: datetime) -> None:
    """End the lines of a batch that nobody answers just now, nor a provider's batch API has."""
    elsewhere = (NativeState.PARKED, NativeState.ANSWERED)
    waiting = row.lines.filter(outcome=LineOutcome.OPEN).exclude(native_state__in=elsewhere)
    waiting.filter(lease_owner="").update(outcome=outcome)
    waiting.filter(lease_until__lte=now).update(outcome=outcome)


def outcomes_of(row: Batch) -> dict[str, int]:
    """Return how many of a batch's lines ended how; those that have not are none of it."""
    if row.status not in (*RUNNING_STATUSES, BatchStatus.FINALIZING):
        names = (LineOutcome.SUCCEEDED, LineOutcome.ERRORED, LineOutcome.CANCELLED, LineOutcome.EXPIRED)
        return {name: getattr(row, name) for name in names}
    counted = BatchLine.objects.filter(batch=row).exclude(outcome=LineOutcome.OPEN)
    return dict(counted.order_by().values_list("outcome").annotate(lines=Count("pk")))


def headers_of(row: Batch) -> dict[str, str]:
    """Return the headers that go with each line. Raises UnreadableSecretError."""
    return dict(decrypt_json(row.sealed_headers, row.project_id, _place(row.pk, "headers")))


def metadata_of(row: Batch) -> dict[str, str]:
    """Return the client's metadata. Raises UnreadableSecretError."""
    return dict(decrypt_json(row.sealed_metadata, row.project_id, _place(row.pk, "metadata")))


def encrypt_errors(row: Batch, errors: list[dict[str, Any]]) -> str:
    """Return what is wrong with a batch's input as its column has it."""
    return encrypt_json(errors, row.project_id, _place(row.pk, "errors"))


def errors_of(row: Batch) -> list[dict[str, Any]]:
    """Return what is wrong with a batch's input. Raises UnreadableSecretError."""
    if not row.sealed_errors:
        return []
    return list(decrypt_json(row.sealed_errors, row.project_id, _place(row.pk, "errors")))


def _place(batch_id: str, column: str) -> str:
    return f"batch:{batch_id}:{column}"
