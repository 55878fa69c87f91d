"""Delivery: what waits for a sink is sent in batches, each until the sink has it; failures pause it, then end it.

One process at a time has a sink (a lease). What is sent is noted after the sink took it: who dies between the two sends
it again. Nothing waits for a sink in a transaction. Must never know how a kind writes its requests.
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

from apps.kernel import database
from apps.kernel.encryption import UnreadableSecretError
from apps.kernel.ids import new_id, time_of
from apps.log_sinks import queue
from apps.log_sinks.credentials import Credentials, decrypt_credentials
from apps.log_sinks.exchange import TIMEOUT, SinkFailed, send
from apps.log_sinks.kinds import bucket, otlp, webhook
from apps.log_sinks.models import LogSink, WaitingRow
from apps.log_sinks.sink_request import Destination, SinkBatch, SinkRequest
from apps.logs.query import COLUMNS, LogRow
from apps.organizations import audit
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

# Seconds that a run goes on taking batches, and for which it has the sink to itself.
RUN = 20.0
LEASE = timedelta(seconds=RUN + 3 * TIMEOUT)
# Sinks that are served at once by all processes: whoever is slow must not keep the workers from other work.
AT_ONCE = 8
# Pauses after failures double from the first to the longest.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=15), timedelta(hours=1)
# For how long a sink may fail before it is switched off; less than rows wait.
PATIENCE = timedelta(days=3)
_KINDS: dict[str, Callable[[Destination, Any, SinkBatch, datetime], SinkRequest]] = {
    LogSink.Kind.WEBHOOK: webhook.request_of,
    LogSink.Kind.S3: bucket.request_of,
    LogSink.Kind.OTLP: otlp.request_of,
}


def find_due(now: datetime) -> list[UUID]:
    """Return the sinks for which something waits and whom nobody serves, those first that were served least lately."""
    served = LogSink.objects.filter(leased_until__gt=now).count()
    waiting = WaitingRow.objects.filter(sink_id=OuterRef("pk"))
    # One sink of each organization, then another of each.
    least_lately = F("leased_until").asc(nulls_first=True)
    turn = Window(RowNumber(), partition_by="organization_id", order_by=[least_lately, "id"])
    due = _servable(now).filter(Exists(waiting)).annotate(turn=turn).order_by("turn", least_lately, "id")
    return list(due.values_list("id", flat=True)[: max(0, AT_ONCE - served)])


def deliver(sink_id: UUID) -> int:
    """Send a sink what waits for it, for as long as a run lasts; return how many rows it took.

    Does nothing while another process does. A failure is noted, not raised. Raises DatabaseError.
    """
    now = timezone.now()
    if not _servable(now).filter(pk=sink_id).update(leased_until=now + LEASE):
        return 0
    sent, ends = 0, time.monotonic() + RUN
    try:
        while time.monotonic() < ends:
            # Anew for each batch: it may have been changed, switched off or deleted, or its organization.
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
    """Send a sink a row that was made up. Raises SinkFailed. Nothing changes here, whatever comes of it."""
    row = _sample_of(sink)
    _send(sink, SinkBatch(sink.pk, 0, row["created_at"].date(), [row]))


def _wanted() -> QuerySet[LogSink]:
    """Return the sinks that are switched on, of organizations that are not deleted."""
    standing = Organization.objects.exclude(status=Organization.Status.DELETED)
    return LogSink.objects.filter(status=LogSink.Status.ACTIVE, organization__in=standing)


def _servable(now: datetime) -> QuerySet[LogSink]:
    """Return the sinks of these that are due and nobody's at the moment."""
    return _wanted().filter(Q(leased_until=None) | Q(leased_until__lte=now), next_attempt_at__lte=now)


def _send(sink: LogSink, batch: SinkBatch) -> None:
    to = Destination(sink.url, sink.options)
    credentials = _credentials_of(sink)
    request = _KINDS[sink.kind](to, credentials, batch, datetime.now(UTC))
    # Nobody keeps a connection of the pool while the sink takes its time.
    database.release_connection()
    send(request, credentials.secrets, sink.organization_id)


def _credentials_of(sink: LogSink) -> Credentials:
    try:
        return decrypt_credentials(bytes(sink.encrypted_credentials))
    except UnreadableSecretError as error:
        raise SinkFailed("No key of ENCRYPTION_KEYS opens its credentials: give them anew") from error


@transaction.atomic
def _note_failure(sink_id: UUID, failure: SinkFailed, now: datetime) -> None:
    sink = LogSink.objects.select_for_update(no_key=True).get(pk=sink_id)
    sink.failures += 1
    sink.failing_since = sink.failing_since or now
    sink.last_error, sink.last_error_at = failure.message[:500], now
    pause = min(FIRST_PAUSE * 2 ** min(sink.failures - 1, 20), LONGEST_PAUSE)
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
    """Return a row that was made up, and says so."""
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
