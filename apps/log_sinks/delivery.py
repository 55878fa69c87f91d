"""Delivery: waiting rows are sent to a sink in batches, each until the sink has it; failures pause it, then end it.

A lease gives a sink to one process at a time. A delivery is recorded after the sink accepted it, so a crash in between
sends the batch again. No transaction is open while a sink is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.kernel.ids import new_id, time_of
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.log_sinks import queue
from apps.log_sinks.credentials import Credentials, decrypt_credentials
from apps.log_sinks.exchange import TIMEOUT, SinkFailed, send
from apps.log_sinks.kinds import (
    Destination,
    SinkBatch,
    SinkRequest,
    bucket_request,
    otlp_request,
    webhook_request,
)
from apps.log_sinks.models import LogSink, WaitingRow
from apps.logs.query import COLUMNS, LogRow
from apps.organizations.journal import audit
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

# Seconds that a run keeps taking batches, which is also the length of its lease.
RUN = 20.0
LEASE = timedelta(seconds=RUN + 3 * TIMEOUT)
# Sinks served concurrently by all processes, so that slow ones do not occupy all workers.
AT_ONCE = 8
# Pauses after failures double from the first to the maximum.
FIRST_PAUSE, MAX_PAUSE = timedelta(seconds=15), timedelta(hours=1)
# How long a sink may fail before it is switched off; shorter than rows wait.
PATIENCE = timedelta(days=3)
_KINDS: dict[str, Callable[[Destination, Any, SinkBatch, datetime], SinkRequest]] = {
    LogSink.Kind.WEBHOOK: webhook_request,
    LogSink.Kind.S3: bucket_request,
    LogSink.Kind.OTLP: otlp_request,
}


def find_due(now: datetime) -> list[UUID]:
    """Return the sinks with waiting rows and no lease, the ones served longest ago first."""
    served = LogSink.objects.filter(leased_until__gt=now).count()
    waiting = WaitingRow.objects.filter(sink_id=OuterRef("pk"))
    # One sink of each organization, then a second of each, and so on.
    least_lately = F("leased_until").asc(nulls_first=True)
    turn = Window(RowNumber(), partition_by="organization_id", order_by=[least_lately, "id"])
    due = _servable(now).filter(Exists(waiting)).annotate(turn=turn).order_by("turn", least_lately, "id")
    return list(due.values_list("id", flat=True)[: max(0, AT_ONCE - served)])


def deliver(sink_id: UUID) -> int:
    """Send waiting rows to a sink for the length of a run; return how many it accepted.

    Does nothing if another process has the lease. A failure is recorded, not raised. Raises DatabaseError.
    """
    now = timezone.now()
    if not _servable(now).filter(pk=sink_id).update(leased_until=now + LEASE):
        return 0
    sent, ends = 0, time.monotonic() + RUN
    try:
        while time.monotonic() < ends:
            # Read again for each batch: sink or organization may have been changed, switched off or deleted.
            sink = _wanted().filter(pk=sink_id).select_related("organization").first()
            batch = queue.take_batch(sink) if sink is not None else None
            if sink is None or batch is None:
                break
            if batch.rows:
                _send(sink, SinkBatch(sink.pk, batch.number, batch.day, batch.rows))
            queue.finish(sink, batch, timezone.now())
            sent += len(batch.rows)
    except SinkFailed as failure:
        _note_failure(sink_id, failure, timezone.now())
    finally:
        LogSink.objects.filter(pk=sink_id).update(leased_until=timezone.now())
    return sent


def send_sample(sink: LogSink) -> None:
    """Send a made-up row to a sink. Raises SinkFailed. Nothing is recorded."""
    row = _sample_of(sink)
    _send(sink, SinkBatch(sink.pk, 0, row["created_at"].date(), [row]))


def _wanted() -> QuerySet[LogSink]:
    """Return the active sinks of organizations that are not deleted."""
    standing = Organization.objects.exclude(status=Organization.Status.DELETED)
    return LogSink.objects.filter(status=LogSink.Status.ACTIVE, organization__in=standing)


def _servable(now: datetime) -> QuerySet[LogSink]:
    """Return the sinks that are due and have no lease."""
    return _wanted().filter(Q(leased_until=None) | Q(leased_until__lte=now), next_attempt_at__lte=now)


def _send(sink: LogSink, batch: SinkBatch) -> None:
    to = Destination(sink.url, sink.options)
    credentials = _credentials_of(sink)
    request = _KINDS[sink.kind](to, credentials, batch, datetime.now(UTC))
    # Do not hold a pooled connection while the sink is slow.
    database.release_connection()
    send(request, credentials.secrets, sink.organization_id)


def _credentials_of(sink: LogSink) -> Credentials:
    try:
        return decrypt_credentials(bytes(sink.encrypted_credentials))
    except UnreadableSecretError as error:
        raise SinkFailed("No key in ENCRYPTION_KEYS decrypts its credentials: enter them again") from error


@transaction.atomic
def _note_failure(sink_id: UUID, failure: SinkFailed, now: datetime) -> None:
    sink = LogSink.objects.select_for_update(no_key=True).get(pk=sink_id)
    sink.failures += 1
    sink.failing_since = sink.failing_since or now
    sink.last_error, sink.last_error_at = failure.message[:500], now
    pause = min(FIRST_PAUSE * 2 ** min(sink.failures - 1, 20), MAX_PAUSE)
    sink.next_attempt_at = now + max(pause, timedelta(seconds=failure.pause))
    log.warning("log_sinks.failed", sink=str(sink_id), kind=sink.kind, failures=sink.failures)
    names = ["failures", "failing_since", "last_error", "last_error_at", "next_attempt_at"]
    if sink.status == LogSink.Status.ACTIVE and now - sink.failing_since >= PATIENCE:
        sink.status, sink.disabled_notice_due = LogSink.Status.FAILED, True
        names += ["status", "disabled_notice_due"]
        details = {"name": sink.name, "failingSince": sink.failing_since, "lastError": sink.last_error}
        with audit.acting():
            audit.record("log_sink.disable", organization_id=sink.organization_id, resource=sink, details=details)
    sink.save(update_fields=names)


def _sample_of(sink: LogSink) -> LogRow:
    """Return a made-up row that is recognizable as one."""
    identifier = new_id()
    nobody = UUID(int=0)
    return {
        **dict.fromkeys(COLUMNS),
        "id": identifier,
        "created_at": time_of(identifier),
        "request_id": "sample",
        "organization_id": sink.organization_id,
        "project_id": nobody,
        "api_key_id": nobody,
        "route": "sample",
        "duration": 1,
        "requested_model": "sample",
        "used_model": "sample",
        "used_provider": "sample",
        "underlying_model": "sample",
        "response_size": 0,
        "cost": Decimal(0),
        "unpriced": False,
        "unified_finish_reason": "completed",
        "status_code": 200,
        "mode": "credits",
        "used_mode": "credits",
    }
