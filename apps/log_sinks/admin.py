"""Log sinks in the admin: delivery state, switching, and a button to delete one; only organizations register sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin

from apps.kernel.pages.admin import LongTableAdmin
from apps.log_sinks import actions
from apps.log_sinks.access import SINKS
from apps.log_sinks.models import LogSink, WaitingRow
from apps.organizations.integrations.integration_admin import IntegrationAdmin, delete_button


@admin.register(LogSink)
class LogSinkAdmin(IntegrationAdmin):
    """Log sinks of organizations."""

    thing = SINKS.thing
    actions_detail = ("delete_sink",)
    delete_sink = delete_button(
        SINKS,
        "delete_sink",
        text="{row} gets nothing any more, and its credentials are erased. This cannot be undone.",
    )
    list_display = ("name", "kind", "url", "organization_link", "status", "failures", "last_delivered_at")
    list_filter = ("kind", "status")
    search_fields = ("id__exact", "name", "organization__name")
    # Changing the address would redirect the log.
    readonly_fields = (
        *("id", "organization", "name", "kind", "url", "options", "include_content", "masked_credentials"),
        *("created_at", "updated_at", "last_delivered_at", "delivered_rows", "dropped_rows", "failures"),
        *("failing_since", "last_error", "last_error_at", "next_attempt_at"),
    )
    fields = (*readonly_fields, "status")
    help_texts = {
        "kind": "How rows are sent.",
        "url": "Where rows are sent.",
        "options": "Options of its kind, such as the format of a webhook, or bucket, prefix and region.",
        "masked_credentials": "The public part of the credentials, or their last characters.",
        "last_delivered_at": "Time of the last delivery (UTC); empty: never.",
        "delivered_rows": "Total delivered rows.",
        "failing_since": "Time of the first consecutive failure (UTC); empty: it works.",
        "last_error": "The last error; empty: none yet.",
        "last_error_at": "Time of the last error (UTC).",
        "next_attempt_at": "Nothing is sent before this moment (UTC).",
        "include_content": "Whether stored prompts and answers are sent.",
        "dropped_rows": "Rows that waited for five days and were not sent.",
        "failures": "Consecutive failures; after three days of them the sink is switched off.",
        "status": "An inactive sink receives nothing. Remove it with the button above.",
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
