"""Rows of batches: creation and its limits, cancellation, counts of lines, and encrypted columns."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from apps.batches import refusals
from apps.batches.input_lines import MAX_LINES
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
from apps.batches.stored_files import insist_on_room
from apps.gateway.access.policy import Policy
from apps.kernel.secrets.encryption import decrypt_json, encrypt_json
from apps.organizations.models import Mode, Organization
from apps.organizations.storage_bounds import max_batch_lines, max_batches
from apps.responses.public_ids import new_public_id
from apps.responses.retention import expiry_of

# How long lines may be answered.
WINDOW: Final = timedelta(hours=24)
# Lines ended by one statement.
MAX_ENDED_LINES: Final = 1_000
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
    lines: int = 0,
    total: int = 0,
) -> Batch:
    """Store a batch whose input is not validated yet and has at most `lines` lines; `total` is shown as their number
    until then. Raises PaymentRequired, RateLimited, InvalidRequest, DatabaseError."""
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
        lines_counted=min(lines, MAX_LINES),
        sealed_headers=encrypt_json(headers, policy.project_id, _place(identifier, "headers")),
        sealed_metadata=encrypt_json(metadata or {}, policy.project_id, _place(identifier, "metadata")),
    )
    with transaction.atomic():
        insist_on_room_for_batch(policy, row.lines_counted)
        row.save(force_insert=True)
    return row


def insist_on_room_for_batch(policy: Policy, lines: int) -> None:
    """Raise PaymentRequired where nothing would pay for a batch, RateLimited where its organization has as many batches
    or lines in progress as it may, InvalidRequest where it has no room for results. In the caller's transaction.
    """
    # One new batch at a time counts; rows that refer to the organization are not held up.
    organization = Organization.objects.select_for_update(no_key=True).get(pk=policy.organization_id)
    if organization.credits <= 0 and not has_keys_of_its_own(policy):
        raise refusals.no_credits_for_batch()
    open_batches = Batch.objects.filter(organization_id=organization.pk, status__in=OPEN_STATUSES)
    sums = open_batches.aggregate(batches=Count("pk"), lines=Sum("lines_counted"))
    batch_limit, line_limit = max_batches(organization), max_batch_lines(organization)
    if sums["batches"] >= batch_limit:
        raise refusals.too_many_batches(batch_limit)
    open_lines = sums["lines"] or 0
    # A batch that is alone is let in however large it is.
    if open_lines and open_lines + lines > line_limit:
        raise refusals.too_many_lines(line_limit, open_lines, lines)
    insist_on_room(organization, 0)


def has_keys_of_its_own(policy: Policy) -> bool:
    """Return whether lines may be answered without credits, as a chat is: with the organization's provider keys."""
    return policy.mode == Mode.API_KEYS or (policy.mode == Mode.HYBRID and bool(policy.own_credentials))


def cancel(batch_id: str, now: datetime) -> Batch:
    """Cancel a batch that has not ended; return the row. No line begins from now on.

    A worker ends the lines that are not in progress (`completion`): there may be 50,000 of them. Raises DatabaseError.
    """
    with transaction.atomic():
        row = Batch.objects.select_for_update().get(pk=batch_id)
        if row.status in (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS) and row.cancelling_at is None:
            row.cancelling_at = now
            if row.status == BatchStatus.IN_PROGRESS:
                row.status = BatchStatus.CANCELLING
            # Preparation sees that a batch in validation is cancelled: it gets no lines.
            row.save(update_fields=["status", "cancelling_at"])
    return row


def status_of(row: Batch) -> BatchStatus:
    """Return how a batch stands, as its client sees it."""
    is_cancelled = row.status == BatchStatus.VALIDATING and row.cancelling_at is not None
    return BatchStatus.CANCELLING if is_cancelled else BatchStatus(row.status)


def waiting_lines(lines: QuerySet[BatchLine], now: datetime) -> QuerySet[BatchLine]:
    """Return those of the lines that no worker answers and no provider's batch API has."""
    elsewhere = (NativeState.PARKED, NativeState.ANSWERED)
    waiting = lines.filter(outcome=LineOutcome.OPEN).exclude(native_state__in=elsewhere)
    return waiting.filter(Q(lease_owner="") | Q(lease_until__lte=now))


def end_some_lines(row: Batch, outcome: LineOutcome, now: datetime) -> int:
    """End a piece of the waiting lines of a batch, in the caller's transaction; return how many. Raises DatabaseError.

    Lines that another process has locked are skipped: a worker is claiming or ending them.
    """
    waiting = waiting_lines(row.lines.select_for_update(skip_locked=True), now)
    ids = list(waiting.order_by("position").values_list("pk", flat=True)[:MAX_ENDED_LINES])
    BatchLine.objects.filter(pk__in=ids).update(outcome=outcome)
    return len(ids)


def outcomes_of(row: Batch) -> dict[str, int]:
    """Return how many of a batch's lines ended how; those that have not are none of it."""
    # The columns count those whose results are written, and the rows are of those whose results are not.
    names = (LineOutcome.SUCCEEDED, LineOutcome.ERRORED, LineOutcome.CANCELLED, LineOutcome.EXPIRED)
    counts: dict[str, int] = {name: getattr(row, name) for name in names}
    if row.status in (*RUNNING_STATUSES, BatchStatus.FINALIZING):
        counted = BatchLine.objects.filter(batch=row).exclude(outcome=LineOutcome.OPEN)
        for outcome, lines in counted.order_by().values_list("outcome").annotate(lines=Count("pk")):
            counts[LineOutcome.ERRORED if outcome == LineOutcome.UNPAID else outcome] += lines
    return counts


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
