"""Activity, traffic and agreed retention in the Django admin: sums of requests, to be looked at."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.kernel import number_formats as as_text
from apps.kernel.admin import LongTableAdmin
from apps.kernel.ids import find_id
from apps.keys.models import ApiKey
from apps.logs.models import ActivityDay, ActivityDelta, ActivitySums, LogRetention, TrafficDelta, TrafficSlot
from apps.organizations.audited_admin import AuditedAdmin
from apps.organizations.models import Project


class SumsAdmin(LongTableAdmin):
    """Sums of requests; in the order of their index, and in no other."""

    list_display: tuple[str, ...] = ("date", "provider", "model", "requests", "tokens", "spend", "organization_id")
    sortable_by = ()

    @admin.display(description="Requests")
    def requests(self, row: ActivitySums) -> str:
        """Return the count, thousands apart."""
        return as_text.count(row.request_count)

    @admin.display(description="Tokens")
    def tokens(self, row: ActivitySums) -> str:
        """Return the count, thousands apart."""
        return as_text.count(row.total_tokens)

    @admin.display(description="Spend")
    def spend(self, row: ActivitySums) -> str:
        """Return the amount in USD."""
        return as_text.usd(row.cost)


@admin.register(ActivityDay)
class ActivityDayAdmin(SumsAdmin):
    """The sums of a day: of organizations, and of the project or key that is looked up."""

    search_help_text = "The exact id of an organization, a project or an API key"

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return newest first, as the index has it."""
        return ("-date", "-id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return organizations' days, or those of what is looked up.

        An owner is found first, and its days by the index that begins with the organization.
        """
        every = ActivityDay.EVERY
        if not search_term:
            # A page of one row names it by its own id.
            named = (request.resolver_match.kwargs if request.resolver_match else {}).get("object_id")
            return (queryset if named else queryset.filter(project_id=every, api_key_id=every)), False
        identifier = find_id(search_term.strip())
        if identifier is None:
            return queryset.none(), False
        if project := Project.objects.filter(pk=identifier).values_list("organization_id", flat=True).first():
            return queryset.filter(organization_id=project, project_id=identifier, api_key_id=every), False
        key = ApiKey.objects.filter(pk=identifier).values_list("project__organization_id", "project_id").first()
        if key is not None:
            return queryset.filter(organization_id=key[0], project_id=key[1], api_key_id=identifier), False
        of_organization = queryset.filter(organization_id=identifier, project_id=every, api_key_id=every)
        return of_organization if of_organization.exists() else queryset.filter(pk=identifier), False


@admin.register(ActivityDelta)
class ActivityDeltaAdmin(SumsAdmin):
    """What is still to be folded into days: empty but for the last minute, while the worker runs."""

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


class TrafficAdmin(LongTableAdmin):
    """What all requests add up to; the dashboard shows it."""

    list_display: tuple[str, ...] = ("starts_at", "aspect", "name", "requests", "errors", "cost")
    sortable_by = ()
    search_fields = ("name",)
    search_help_text = "A model, a provider, or the exact id of an organization"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look a name up."""
        words = search_term.strip().replace("\0", "")
        return (queryset.filter(name=words) if words else queryset), False


@admin.register(TrafficSlot)
class TrafficSlotAdmin(TrafficAdmin):
    """Five minutes, or an hour."""

    list_display = ("starts_at", "minutes", *TrafficAdmin.list_display[1:])


@admin.register(TrafficDelta)
class TrafficDeltaAdmin(TrafficAdmin):
    """What is still to be folded into slots: empty but for the last minute, while the worker runs."""


@admin.register(LogRetention)
class LogRetentionAdmin(AuditedAdmin):
    """How long an organization's log is kept, where that was agreed on."""

    thing = "log_retention"
    list_display = ("organization", "days")
    autocomplete_fields = ("organization",)
    search_fields = ("organization__name", "organization__id")
