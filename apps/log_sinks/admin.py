"""Log sinks in the admin: delivery state, switching, and a button to delete one; only organizations register sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin

from apps.destinations.destination_admin import DestinationAdmin
from apps.kernel.pages.admin import LongTableAdmin
from apps.log_sinks import actions
from apps.log_sinks.access import SINKS
from apps.log_sinks.models import LogSink, WaitingRow
from apps.organizations.integrations.integration_admin import delete_button


@admin.register(LogSink)
class LogSinkAdmin(DestinationAdmin):
    """Log sinks of organizations."""

    thing = SINKS.thing
    actions_detail = ("delete_sink",)
    delete_sink = delete_button(
        SINKS,
        "delete_sink",
        text="{row} gets nothing any more, and its credentials are erased. This cannot be undone.",
    )
    readonly_fields = (
        *DestinationAdmin.readonly_fields,
        "options",
        "include_content",
        "delivered_rows",
        "dropped_rows",
    )
    fields = (*readonly_fields, "status")
    help_texts = {
        **DestinationAdmin.help_texts,
        "options": "Options of its kind, such as the format of a webhook, or bucket, prefix and region.",
        "include_content": "Whether stored prompts and answers are sent.",
        "delivered_rows": "Total delivered rows.",
        "dropped_rows": "Rows that waited for five days and were not sent.",
    }

    def change_row(self, row: LogSink, changes: Mapping[str, Any]) -> None:
        """Switch a sink on or off."""
        actions.change_sink(sink=row, changes=changes)


@admin.register(WaitingRow)
class WaitingRowAdmin(LongTableAdmin):
    """Rows in the queue of log sinks."""

    list_display = ("id", "sink_id", "log_id", "batch", "queued_at")
    search_fields = ("sink_id",)
    search_help_text = "The exact id of a sink"
    owners = ("sink_id", "log_id")
    help_texts = {
        "sink_id": "The sink that will receive it.",
        "log_id": "The id of the request in the request log.",
        "batch": "The number of its batch; empty: not in a batch yet.",
        "queued_at": "Waiting since (UTC).",
    }
