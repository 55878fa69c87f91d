"""Delivery of the log: waiting rows are sent to a sink in batches, each until the sink has it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog
from django.db.models import Exists, F, OuterRef, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.destinations.credentials import credentials_to_send
from apps.destinations.delivery import run, servable
from apps.destinations.exchange import DeliveryRequest, send
from apps.kernel.ids import new_id, time_of
from apps.kernel.postgres import database
from apps.log_sinks import queue
from apps.log_sinks.access import SINKS
from apps.log_sinks.kinds import (
    Credentials,
    SinkAddress,
    SinkBatch,
    bucket_request,
    otlp_request,
    webhook_request,
)
from apps.log_sinks.models import LogSink, WaitingRow
from apps.logs.query import COLUMNS, LogRow

log = structlog.get_logger(__name__)

# Sinks served concurrently by all processes, so that slow ones do not occupy all workers.
AT_ONCE = 8
_KINDS: dict[str, Callable[[SinkAddress, Any, SinkBatch, datetime], DeliveryRequest]] = {
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
    due = servable(SINKS, now).filter(Exists(waiting)).annotate(turn=turn).order_by("turn", least_lately, "id")
    return list(due.values_list("id", flat=True)[: max(0, AT_ONCE - served)])


def deliver(sink_id: UUID) -> int:
    """Send waiting rows to a sink for the length of a run; return how many it accepted.

    Does nothing if another process has the lease. A failure is recorded, not raised. Raises DatabaseError.
    """
    return run(SINKS, sink_id, _send_batch)


def _send_batch(sink: LogSink) -> int | None:
    """Send the next batch; return how many rows it had, None if no rows wait. Raises DeliveryFailed."""
    batch = queue.take_batch(sink)
    if batch is None:
        return None
    if batch.rows:
        _send(sink, SinkBatch(sink.pk, batch.number, batch.day, batch.rows))
    queue.finish(sink, batch, timezone.now())
    return len(batch.rows)


def send_sample(sink: LogSink) -> None:
    """Send a made-up row to a sink. Raises DeliveryFailed. Nothing is recorded."""
    row = _sample_of(sink)
    _send(sink, SinkBatch(sink.pk, 0, row["created_at"].date(), [row]))


def _send(sink: LogSink, batch: SinkBatch) -> None:
    to = SinkAddress(sink.url, sink.options)
    credentials = credentials_to_send(sink.encrypted_credentials, Credentials)
    request = _KINDS[sink.kind](to, credentials, batch, datetime.now(UTC))
    # Do not hold a pooled connection while the sink is slow.
    database.release_connection()
    send(request, credentials.secrets, sink.organization_id)


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
