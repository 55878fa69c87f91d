"""Log sinks in the admin: seen with their delivery, switched, removed; registered by organizations alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin

from apps.kernel.admin import LongTableAdmin, MadeElsewhereAdmin
from apps.log_sinks import actions
from apps.log_sinks.models import LogSink, WaitingRow
from apps.log_sinks.sink_buttons import delete_sink
from apps.organizations.admin_buttons import ButtonsAdmin
from apps.organizations.audited_admin import ActingAdmin
from apps.organizations.organization_tabs import OrganizationLink


@admin.register(LogSink)
class LogSinkAdmin(OrganizationLink, ButtonsAdmin, MadeElsewhereAdmin, ActingAdmin):
    """Receivers of their log that organizations registered."""

    thing = "log_sink"
    actions_detail = ("delete_sink",)
    delete_sink = delete_sink
    list_display = ("name", "kind", "url", "organization_link", "status", "failures", "last_delivered_at")
    list_filter = ("kind", "status")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    sortable_by = ()
    ordering = ("-id",)
    # The address is where the log is sent: whoever could change it could have it.
    readonly_fields = (
        *("id", "organization", "name", "kind", "url", "options", "include_content", "masked_credentials"),
        *("created_at", "updated_at", "last_delivered_at", "delivered_rows", "dropped_rows", "failures"),
        *("failing_since", "last_error", "last_error_at", "next_attempt_at"),
    )
    fields = (*readonly_fields, "status")
    help_texts = {
        "kind": "How rows are sent.",
        "url": "Where rows are sent.",
        "options": "What its kind needs besides, such as the format of a webhook, or bucket, prefix and region.",
        "masked_credentials": "The part of the credentials that is no secret, or its end.",
        "last_delivered_at": "When it last took rows (UTC); empty: never.",
        "delivered_rows": "Rows that it has taken in all.",
        "failing_since": "When the first of these failures was (UTC); empty: it works.",
        "last_error": "What was wrong the last time; empty: nothing yet.",
        "last_error_at": "When that was (UTC).",
        "next_attempt_at": "Nothing is sent before this moment (UTC).",
        "include_content": "Whether what was said is sent, as far as the organization retains it.",
        "dropped_rows": "Rows that waited for five days and were not sent.",
        "failures": "In a row; after three days of them the sink is switched off.",
        "status": "An inactive one gets nothing. Remove it with the button above.",
    }

    def change_row(self, row: LogSink, changes: Mapping[str, Any]) -> None:
        """Switch a sink on or off; one that is to be deleted loses its credentials too."""
        if changes.get("status") == LogSink.Status.DELETED:
            actions.delete_sink(sink=row)
        else:
            actions.change_sink(sink=row, changes=changes)


@admin.register(WaitingRow)
class WaitingRowAdmin(LongTableAdmin):
    """What waits for sinks."""

    list_display = ("id", "sink_id", "log_id", "batch", "queued_at")
    search_fields = ("sink_id",)
    search_help_text = "The exact id of a sink"
    owners = ("sink_id", "log_id")
    help_texts = {
        "sink_id": "The sink that it is sent to.",
        "log_id": "The id of the request in the request log.",
        "batch": "The number under which it is sent, together with others; empty: not yet taken.",
        "queued_at": "Since when it waits (UTC).",
    }
