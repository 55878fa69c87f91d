"""Erasure of the log sinks of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.log_sinks.models import LogSink, WaitingRow

# Rows removed by one statement: small enough not to block others.
BATCH = 5_000


def erase(organization_id: UUID) -> None:
    """Delete all sinks with their credentials and waiting rows."""
    sinks = LogSink.objects.filter(organization=organization_id)
    for sink_id in sinks.values_list("id", flat=True):
        waiting = WaitingRow.objects.filter(sink_id=sink_id)
        while ids := list(waiting.order_by("id").values_list("id", flat=True)[:BATCH]):
            waiting.filter(id__in=ids).delete()
    sinks.delete()
