"""Erasure of the log sinks of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.kernel.postgres.deletion import delete_in_pieces
from apps.log_sinks.models import LogSink, WaitingRow


def erase(organization_id: UUID) -> None:
    """Delete all sinks with their credentials and waiting rows."""
    sinks = LogSink.objects.filter(organization=organization_id)
    for sink_id in sinks.values_list("id", flat=True):
        delete_in_pieces(WaitingRow.objects.filter(sink_id=sink_id))
    sinks.delete()
