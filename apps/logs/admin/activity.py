"""Activity, traffic, performance, agreed retention and saved views in the admin; sums of requests are read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from apps.kernel.ids import find_id
from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.admin import ReplicaListAdmin
from apps.kernel.pages.number_formats import mark_numbers
from apps.keys.models import ApiKey
from apps.logs.models import (
    ActivityDay,
    ActivityDelta,
    ActivitySums,
    LogRetention,
    PerformanceCounts,
    PerformanceDelta,
    PerformanceSlot,
    RefusedHour,
    SavedView,
    TrafficDelta,
    TrafficSlot,
)
from apps.logs.performance import performance_of
from apps.organizations.models import Organization, Project
from apps.organizations.operators.audited_admin import AuditedAdmin
from apps.organizations.operators.organization_tabs import link_by_id

_SUMS = {
    "date": "The UTC day.",
    "project_id": "All zeros: every project together.",
    "api_key_id": "All zeros: every API key together.",
    "model": "The model that answered, by the catalog's id.",
    "provider": "The provider that answered, by the catalog's id.",
    "request_count": "Requests, successful or not.",
    "input_tokens": "Prompt tokens, including cached ones.",
    "output_tokens": "Completion tokens, including reasoning.",
    "cached_tokens": "Input tokens that providers read from their prompt caches.",
    "total_tokens": "Input and output tokens together.",
    "error_count": "Requests that ended with an error.",
    "cache_count": "Requests answered from the response cache.",
    "credits_request_count": "Requests paid with credits.",
    "api_keys_request_count": "Requests paid with the organization's own provider keys.",
    "cost": "Total USD, without storage.",
    "input_cost": "USD for uncached input tokens.",
    "output_cost": "USD for output tokens.",
    "cached_input_cost": "USD for cached input tokens.",
    "request_cost": "USD for prices per request.",
    "data_storage_cost": "USD for storing the log, in addition to the cost.",
    "image_input_cost": "USD for image input.",
    "image_output_cost": "USD for generated images.",
    "discount_savings": "USD saved by discounts; not part of the cost.",
    "credits_cost": "USD of the cost that was paid with credits.",
    "api_keys_cost": "USD of the cost that the organization's own provider keys paid.",
    "credits_data_storage_cost": "USD of the storage of requests paid with credits.",
    "api_keys_data_storage_cost": "USD of the storage of requests with the organization's own provider keys.",
}
_TRAFFIC = {
    "starts_at": "Beginning of the slot (UTC).",
    "minutes": "Length of the slot: 5 or 60 minutes.",
    "aspect": "The grouping; each request counts once in every grouping.",
    "name": "The model, the provider, the organization's id, the finish reason, or the duration step; empty for "
    "everything.",
    "requests": "Requests, successful or not.",
    "errors": "Requests that ended with an error.",
    "cache_hits": "Requests answered from the response cache.",
    "input_tokens": "Prompt tokens, including cached ones.",
    "output_tokens": "Completion tokens, including reasoning.",
    "cached_tokens": "Input tokens that providers read from their prompt caches.",
    "cost": "Total USD, without storage.",
    "credits_cost": "USD of the cost that was paid with credits.",
}


class SumsAdmin(ReplicaListAdmin):
    """Sums of requests, sorted by their index only."""

    list_display: tuple[str, ...] = ("date", "provider", "model", "requests", "tokens", "spend", "organization_id")
    sortable_by = ()
    help_texts = _SUMS

    @admin.display(description="Requests")
    def requests(self, row: ActivitySums) -> str:
        """Format the count with thousands separators."""
        return mark_numbers(as_text.count(row.request_count))

    @admin.display(description="Tokens")
    def tokens(self, row: ActivitySums) -> str:
        """Format the count with thousands separators."""
        return mark_numbers(as_text.count(row.total_tokens))

    @admin.display(description="Spend")
    def spend(self, row: ActivitySums) -> str:
        """Format the amount in USD."""
        return mark_numbers(as_text.usd(row.cost))


@admin.register(ActivityDay)
class ActivityDayAdmin(SumsAdmin):
    """Daily sums of organizations, and of a project or key that is searched for."""

    search_help_text = "The exact id of an organization, a project or an API key"

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return newest first, the order of the index."""
        return ("-date", "-id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return organizations' days, or those of the searched id.

        The owner is looked up first, so that the index, which begins with the organization, finds the days.
        """
        every = ActivityDay.EVERY
        if not search_term:
            # The page of one row is addressed by the row's id.
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
    """Deltas that are not folded into days yet: older than a minute only if the worker is down."""

    search_fields = ("organization_id",)
    search_help_text = "The exact id of an organization"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by organization only; a delta's id is meaningless."""
        if not search_term:
            return queryset, False
        organization_id = find_id(search_term.strip())
        return queryset.filter(organization_id=organization_id) if organization_id else queryset.none(), False


class TrafficAdmin(ReplicaListAdmin):
    """Sums of all requests, as on the dashboard."""

    list_display: tuple[str, ...] = ("starts_at", "aspect", "name", "requests", "errors", "cost")
    sortable_by = ()
    search_fields = ("name",)
    search_help_text = "A model, a provider, or the exact id of an organization"
    help_texts = _TRAFFIC

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by name."""
        words = search_term.strip().replace("\0", "")
        return (queryset.filter(name=words) if words else queryset), False


@admin.register(TrafficSlot)
class TrafficSlotAdmin(TrafficAdmin):
    """Slots of five minutes or an hour."""

    list_display = ("starts_at", "minutes", *TrafficAdmin.list_display[1:])


@admin.register(TrafficDelta)
class TrafficDeltaAdmin(TrafficAdmin):
    """Deltas that are not folded into slots yet: older than a minute only if the worker is down."""


class PerformanceAdmin(ReplicaListAdmin):
    """Outcomes of calls by model and provider, as on the pages of models."""

    list_display: tuple[str, ...] = ("starts_at", "provider", "model", "succeeded", "failed", "first_token", "speed")
    sortable_by = ()
    search_fields = ("model",)
    search_help_text = "The exact id of a model"
    exclude = ("first_token_steps", "speed_steps")
    readonly_fields = ("first_token", "speed")
    help_texts = {
        "starts_at": "Beginning of the slot (UTC).",
        "minutes": "Length of the slot: 60 or 1440 minutes.",
        "model": "The model that was called, by the catalog's id.",
        "provider": "The provider that was called, by the catalog's id.",
        "succeeded": "Calls that were answered.",
        "failed": "Calls that failed through the provider's fault, also where another provider answered then.",
        "first_token": "Median time from the call to the first token of streamed answers, to 10%.",
        "speed": "Median of output tokens per second, to 10%.",
    }

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by model."""
        words = search_term.strip().replace("\0", "")
        return (queryset.filter(model=words) if words else queryset), False

    @admin.display(description="First token")
    def first_token(self, row: PerformanceCounts) -> str:
        """Return the median time to the first token of streamed answers."""
        median = performance_of(row).first_token
        return mark_numbers(as_text.milliseconds(median)) if median is not None else as_text.NOTHING

    @admin.display(description="Tokens a second")
    def speed(self, row: PerformanceCounts) -> str:
        """Return the median of output tokens a second."""
        median = performance_of(row).speed
        return mark_numbers(as_text.count(round(median))) if median is not None else as_text.NOTHING


@admin.register(PerformanceSlot)
class PerformanceSlotAdmin(PerformanceAdmin):
    """Slots of an hour or a day."""

    list_display = ("starts_at", "minutes", *PerformanceAdmin.list_display[1:])


@admin.register(PerformanceDelta)
class PerformanceDeltaAdmin(PerformanceAdmin):
    """Outcomes that are not folded into slots yet: older than a minute only if the worker is down."""


@admin.register(RefusedHour)
class RefusedHourAdmin(ReplicaListAdmin):
    """Refused requests, which are not in the request log: counts by key, reason and hour."""

    list_display = ("hour", "status", "code", "count", "last_at", "owner", "key")
    sortable_by = ()
    search_fields = ("organization_id",)
    search_help_text = "The exact id of an organization or of an API key"
    owners = ("organization_id", "api_key_id")
    help_texts = {
        "hour": "Beginning of the hour (UTC).",
        "status": "The HTTP status of the answer.",
        "code": "The error code of the answer.",
        "count": "Number of refused requests.",
        "last_at": "When the last of them came (UTC).",
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows with the names of their organizations and keys."""
        names = Organization.objects.filter(pk=OuterRef("organization_id")).values("name")
        keys = ApiKey.objects.filter(pk=OuterRef("api_key_id")).values("description")
        rows: QuerySet[Any] = super().get_queryset(request)
        named: QuerySet[Any] = rows.annotate(owner_name=Subquery(names), key_name=Subquery(keys))
        return named

    @admin.display(description="Organization")
    def owner(self, row: Any) -> str:
        """Return a link to the organization, or its id if it was removed."""
        if row.owner_name is None:
            return str(row.organization_id)
        return link_by_id("organizations_organization", row.organization_id, row.owner_name)

    @admin.display(description="API key")
    def key(self, row: Any) -> str:
        """Return a link to the key, or its id if it was removed."""
        return str(row.api_key_id) if row.key_name is None else link_by_id("keys_apikey", row.api_key_id, row.key_name)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by organization or key only; a row's id is meaningless."""
        if not search_term:
            return queryset, False
        identifier = find_id(search_term.strip())
        return self.find_first(queryset, identifier, self.owners) if identifier else queryset.none(), False


@admin.register(LogRetention)
class LogRetentionAdmin(AuditedAdmin):
    """Agreed retention of organizations' logs, which overrides the plan's."""

    thing = "log_retention"
    list_display = ("organization", "days")
    autocomplete_fields = ("organization",)
    search_fields = ("organization__name", "organization__id")
    help_texts = {
        "organization": "The organization; cannot be changed later.",
        "days": "Days that rows of the log are kept, 1 to 3,650, instead of the plan's number.",
    }


@admin.register(SavedView)
class SavedViewAdmin(AuditedAdmin):
    """Filters of the log that members saved under a name."""

    thing = "saved_view"
    list_display = ("name", "organization", "created_by", "is_shared", "created_at")
    list_select_related = ("organization", "created_by")
    autocomplete_fields = ("organization", "created_by")
    readonly_fields = ("created_at",)
    search_fields = ("name", "organization__name", "organization__id", "created_by__email")
    help_texts = {
        "organization": "The organization whose log the view filters.",
        "created_by": "The member who saved the view.",
        "name": "The name of the view in the console; each of a member's views has another one.",
        "query": "The filters and the period, as the query string of the page Logs.",
        "is_shared": "Whether all members of the organization see the view.",
        "created_at": "When the view was saved.",
    }
