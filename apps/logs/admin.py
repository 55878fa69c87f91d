"""Request logs and activity in the admin: what happened, never what was said."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from apps.kernel.admin import LongTableAdmin
from apps.logs.models import ActivityDay, RequestLog


@admin.register(RequestLog)
class RequestLogAdmin(LongTableAdmin):
    """One row a request."""

    list_display = (
        "created_at",
        "used_provider",
        "used_model",
        "status_code",
        "unified_finish_reason",
        "total_tokens",
        "cost",
        "duration",
        "organization_id",
    )
    # What customers sent and were answered is theirs.
    exclude = (
        "messages",
        "content",
        "reasoning_content",
        "tools",
        "tool_choice",
        "tool_results",
        "response_format",
        "custom_headers",
        "error_details",
    )
    owners = ("organization_id", "project_id", "api_key_id")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return newest first: the order of ids, as the partitions have it."""
        return ("-created_at", "-id")


@admin.register(ActivityDay)
class ActivityDayAdmin(LongTableAdmin):
    """The sums of a day."""

    list_display = ("date", "provider", "model", "request_count", "total_tokens", "cost", "organization_id")
    owners = ("organization_id", "project_id")
