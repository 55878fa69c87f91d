"""Request logs and activity in the Django admin, without the content of requests."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.kernel.admin import LongTableAdmin
from apps.kernel.ids import find_id
from apps.logs.models import ActivityDay, ActivityDelta, LogRetention, RequestLog
from apps.organizations.audited_admin import AuditedAdmin


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
        "unpriced",
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

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the days of keys: those of projects and organizations are the same once more."""
        return super().get_queryset(request).exclude(api_key_id=ActivityDay.EVERY)


@admin.register(ActivityDelta)
class ActivityDeltaAdmin(LongTableAdmin):
    """What is still to be folded into days: empty but for the last minute, while the worker runs."""

    list_display = ("date", "provider", "model", "request_count", "total_tokens", "cost", "organization_id")
    search_fields = ("organization_id",)
    search_help_text = "The exact id of an organization"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look an organization up; a note's own number says nothing."""
        if not search_term:
            return queryset, False
        organization_id = find_id(search_term.strip())
        return queryset.filter(organization_id=organization_id) if organization_id else queryset.none(), False


@admin.register(LogRetention)
class LogRetentionAdmin(AuditedAdmin):
    """How long an organization's log is kept, where that was agreed on."""

    thing = "log_retention"
    list_display = ("organization", "days")
    autocomplete_fields = ("organization",)
    search_fields = ("organization__name", "organization__id")
