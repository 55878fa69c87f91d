"""The request log in the admin: filters, search, and a page for each request. Read-only.

The traffic roll-up supplies the choices of filters, and the hours in which they occur, so that only matching parts of
the log are searched. Stored content is shown by a button, to operators with the permission, and each view is recorded
in the organization's audit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connections, transaction
from django.db.models import Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_POST

from apps.kernel.ids import find_id
from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.admin import ReplicaListAdmin
from apps.kernel.pages.number_formats import mark_numbers
from apps.keys.models import ApiKey, ProviderKey
from apps.logs.models import RequestLog, TrafficCounts, TrafficDelta, TrafficSlot
from apps.logs.request_page import SCORE_COLUMNS, Link, Reader, keeps_content, page_of, row_of
from apps.organizations.journal import audit
from apps.organizations.models import AuditEntry, Organization, Project, User

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin


_Aspect = TrafficCounts.Aspect
# Choices of a filter, those with the most requests first.
_OFFERED = 12
# How far back choices are looked up.
_LOOKED_UP = timedelta(days=7)
TIMES = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
USUAL_TIME, ALL_TIME = "24h", "all"
TIME_TITLES = {
    "1h": "Last hour",
    "24h": "Last 24 hours",
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    ALL_TIME: "All that is kept",
}


class TimeFilter(SimpleListFilter):
    """The last hour, day (default), week, month, or everything."""

    title, parameter_name = "time", "time"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the periods."""
        return list(TIME_TITLES.items())

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield each period, without an "all" entry."""
        for value, title in self.lookup_choices:
            chosen = {self.parameter_name: value}
            yield {
                "selected": value == (self.value() or USUAL_TIME),
                "query_string": changelist.get_query_string(chosen),
                "display": title,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the period. An exact id is searched at all times."""
        chosen = self.value() or USUAL_TIME
        if chosen not in TIMES or (self.value() is None and find_id(request.GET.get("q", "").strip()) is not None):
            return queryset
        return queryset.filter(created_at__gte=timezone.now() - TIMES[chosen])


class StatusFilter(SimpleListFilter):
    """The class of the answer's HTTP status."""

    title, parameter_name = "status", "status"
    _CLASSES = {"2xx": (200, 299), "4xx": (400, 499), "429": (429, 429), "5xx": (500, 599)}

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the classes."""
        return [("2xx", "2xx answered"), ("4xx", "4xx refused"), ("429", "429 too many"), ("5xx", "5xx failed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of that class."""
        bounds = self._CLASSES.get(self.value() or "")
        return queryset.filter(status_code__range=bounds) if bounds else queryset


class _AspectFilter(SimpleListFilter):
    """A grouping of requests, by its names in the roll-up."""

    aspect: TrafficCounts.Aspect
    column: str

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the names with the most requests recently, and the current choice."""
        lately = {"minutes": 60, "aspect": self.aspect, "starts_at__gte": timezone.now() - _LOOKED_UP}
        slots = TrafficSlot.objects.filter(**lately).values("name").annotate(total=Sum("requests"))
        names = list(slots.order_by("-total", "name").values_list("name", flat=True)[:_OFFERED])
        chosen = request.GET.get(self.parameter_name or "", "").replace("\0", "")
        if chosen and chosen not in names:
            names.append(chosen)
        return self.titles(names)

    def titles(self, names: list[str]) -> list[tuple[str, str]]:
        """Return each name with its title."""
        return [(name, name) for name in names]

    def has_output(self) -> bool:
        """Whether the filter is shown, even with a single choice."""
        return bool(self.lookup_choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the name, searched in the hours in which it occurs."""
        chosen = (self.value() or "").replace("\0", "")
        if not chosen:
            return queryset
        return within_hours(queryset, self.aspect, [chosen]).filter(**{self.column: chosen})


class ModelFilter(_AspectFilter):
    """The model that answered."""

    title, parameter_name, aspect, column = "model", "model", _Aspect.MODEL, "used_model"


class ProviderFilter(_AspectFilter):
    """The provider that answered."""

    title, parameter_name, aspect, column = "provider", "provider", _Aspect.PROVIDER, "used_provider"


class EndingFilter(_AspectFilter):
    """The finish reason; errors by type."""

    title, parameter_name, aspect, column = "ending", "ended", _Aspect.END, "unified_finish_reason"

    def titles(self, names: list[str]) -> list[tuple[str, str]]:
        """Return the title of each finish reason."""
        return [(name, name.replace("_", " ").capitalize()) for name in names]


class OrganizationFilter(_AspectFilter):
    """The organization."""

    title, parameter_name, aspect, column = "organization", "organization", _Aspect.ORGANIZATION, "organization_id"

    def titles(self, names: list[str]) -> list[tuple[str, str]]:
        """Return each organization's name, or the id of a removed one."""
        ids = [identifier for name in names if (identifier := find_id(name)) is not None]
        called = {str(pk): name for pk, name in Organization.objects.filter(pk__in=ids).values_list("pk", "name")}
        return [(name, called.get(name, name)) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return its rows, which are indexed."""
        if not self.value():
            return queryset
        identifier = find_id(self.value() or "")
        return queryset.none() if identifier is None else queryset.filter(organization_id=identifier)


def within_hours(rows: QuerySet[Any], aspect: TrafficCounts.Aspect, names: list[str]) -> QuerySet[Any]:
    """Return the rows of the hours from the first to the last in which the roll-up counts any of these names.

    Rows from before the roll-up began and rows that are not folded yet are included.
    """
    if TrafficDelta.objects.filter(aspect=aspect, name__in=names).exists():
        return rows
    hours = TrafficSlot.objects.filter(minutes=60)
    counting = hours.aggregate(first=Min("starts_at"))["first"]
    found = hours.filter(aspect=aspect, name__in=names).aggregate(first=Min("starts_at"), last=Max("starts_at"))
    if counting is None:
        return rows
    if found["last"] is None:
        return rows.filter(created_at__lt=counting)
    rows = rows.filter(created_at__lt=found["last"] + timedelta(hours=1))
    # Names counted in the first slot may have occurred before.
    return (
        rows
        if found["first"] <= counting
        else rows.filter(Q(created_at__gte=found["first"]) | Q(created_at__lt=counting))
    )


MAY_SEE_CONTENT = "logs.view_content"
# Timeout of the list's query in milliseconds.
_STATEMENT_LIMIT = 5_000
_ALIKE = 50


@admin.register(RequestLog)
class RequestLogAdmin(ReplicaListAdmin):
    """One row per request."""

    list_display = (
        "sent",
        "answered_by",
        "provider",
        "status",
        "ended",
        "tokens",
        "spend",
        "took",
        "first_token",
        "owner",
    )
    list_display_links = ("sent",)
    list_filter = (TimeFilter, EndingFilter, StatusFilter, ModelFilter, ProviderFilter, OrganizationFilter)
    list_filter_sheet = False
    # Partitions are ordered by id; another order would scan all of them.
    sortable_by = ()
    search_help_text = "A model or provider, a request id, or any exact id"
    owners = ("organization_id", "project_id", "api_key_id")
    change_form_template = "admin/logs/request.html"
    list_before_template = "admin/logs/request_list_note.html"

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return newest first: by id, like the partitions."""
        return ("-created_at", "-id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows with the names of their organizations, without content."""
        names = Organization.objects.filter(pk=OuterRef("organization_id")).values("name")
        heavy = (
            *("messages", "content", "reasoning_content", "tools", "tool_results", "routing_metadata"),
            *("refusal", "tool_calls", "choices", "citations", "media", "media_data"),
        )
        rows: QuerySet[Any] = super().get_queryset(request)
        named: QuerySet[Any] = rows.defer(*heavy).annotate(owner_name=Subquery(names))
        return named

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search an exact id, models and providers by name, or a request id."""
        words = search_term.strip().replace("\0", "")
        if not words or find_id(words) is not None:
            return super().get_search_results(request, queryset, words)
        aspects = {TrafficCounts.Aspect.MODEL: "used_model", TrafficCounts.Aspect.PROVIDER: "used_provider"}
        for aspect, column in aspects.items():
            if names := _names_like(aspect, words):
                return within_hours(queryset, aspect, names).filter(**{f"{column}__in": names}), False
        return queryset.filter(Q(request_id=words) | Q(requested_model=words)), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list; if the query takes too long, show a message and the last hour instead."""
        try:
            return super().changelist_view(request, {**(extra_context or {}), "shown": _shown(request)})
        except OperationalError:
            if request.GET.get("time") == "1h":
                raise
            words = "This search covers too many requests. Showing the last hour; choose another filter or an id."
            messages.warning(request, words)
            chosen = request.GET.copy()
            chosen["time"] = "1h"
            return HttpResponseRedirect(f"?{chosen.urlencode()}")

    def render_list(self, request: HttpRequest, extra_context: dict[str, Any] | None, using: str) -> HttpResponse:
        """Return the list within the timeout. Raises OperationalError."""
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {_STATEMENT_LIMIT}")
            return super().render_list(request, extra_context, using)

    def get_urls(self) -> list[URLPattern]:
        """Add the button that shows content."""
        view = self.admin_site.admin_view(require_POST(self._show_content))
        return [path("<uuid:log_id>/content/", view, name="logs_requestlog_content"), *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one request without content."""
        identifier = find_id(object_id)
        rows = RequestLog.objects.defer("media_data")
        row = rows.filter(id=identifier).first() if identifier is not None else None
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]  # Django's own way
        if request.method == "POST" or not self.has_view_permission(request, row):
            raise PermissionDenied
        return self._page(request, row)

    def _show_content(self, request: HttpRequest, log_id: Any) -> HttpResponse:
        """Show the content, and record in the organization's audit log who saw it."""
        row = RequestLog.objects.defer("media_data").filter(id=log_id).first()
        if row is None or not keeps_content(row_of(row)):
            raise Http404
        if not (self.has_view_permission(request, row) and request.user.has_perm(MAY_SEE_CONTENT)):
            raise PermissionDenied
        operator = request.user if isinstance(request.user, User) else None
        with transaction.atomic(), audit.acting(operator, AuditEntry.ActorType.ADMIN):
            audit.record("log.show_content", organization_id=row.organization_id, resource=row)
        return self._page(request, row, with_content=True)

    def _page(self, request: HttpRequest, row: RequestLog, *, with_content: bool = False) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"{row.used_model or row.requested_model}, {row.created_at:%Y-%m-%d %H:%M:%S} UTC",
            "opts": self.opts,
            "original": row,
            "page": page_of(row_of(row), Reader.OPERATOR, _links_of(row), with_content=with_content),
            "score_columns": SCORE_COLUMNS,
            "with_content": with_content,
            "may_see_content": request.user.has_perm(MAY_SEE_CONTENT),
            "has_view_permission": True,
        }
        return TemplateResponse(request, self.change_form_template or "", context)

    @admin.display(description="Sent (UTC)")
    def sent(self, row: RequestLog) -> str:
        """Format the time to the second."""
        return f"{row.created_at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="Model")
    def answered_by(self, row: RequestLog) -> str:
        """Return the model that answered, else the requested one."""
        return row.used_model or row.requested_model

    @admin.display(description="Provider", empty_value=as_text.NOTHING)
    def provider(self, row: RequestLog) -> str | None:
        """Return the provider that answered, if any."""
        return row.used_provider or None

    @admin.display(description="Status", empty_value=as_text.NOTHING)
    def status(self, row: RequestLog) -> str | None:
        """Return the HTTP status."""
        return format_html(
            '<span class="{}">{}</span>', "board-bad" if row.has_error else "board-good", row.status_code
        )

    @admin.display(description="Ended")
    def ended(self, row: RequestLog) -> str:
        """Return the finish reason as text."""
        return (row.unified_finish_reason or "unknown").replace("_", " ")

    @admin.display(description="Tokens")
    def tokens(self, row: RequestLog) -> str:
        """Format the count with thousands separators."""
        return as_text.NOTHING if row.total_tokens is None else mark_numbers(as_text.count(row.total_tokens))

    @admin.display(description="Cost")
    def spend(self, row: RequestLog) -> str:
        """Return the cost in USD, or a note that no price is known."""
        return (
            "no price" if row.unpriced else as_text.NOTHING if row.cost is None else mark_numbers(as_text.usd(row.cost))
        )

    @admin.display(description="Took")
    def took(self, row: RequestLog) -> str:
        """Return the time from the request to the last byte."""
        return mark_numbers(as_text.milliseconds(row.duration))

    @admin.display(description="First token")
    def first_token(self, row: RequestLog) -> str:
        """Return the time to the first content of a stream."""
        return mark_numbers(as_text.milliseconds(row.time_to_first_token))

    @admin.display(description="Organization")
    def owner(self, row: Any) -> str:
        """Return a link to the organization."""
        if row.owner_name is None:
            return str(row.organization_id)
        url = reverse("admin:organizations_organization_change", args=[row.organization_id])
        return format_html('<a class="board-link" href="{}">{}</a>', url, row.owner_name)


def _shown(request: HttpRequest) -> list[str]:
    """Return a description of the active filters."""
    names = ("ended", "status", "model", "provider", "organization")
    chosen = [f"{name}: {value.replace('_', ' ')}" for name in names if (value := request.GET.get(name))]
    if "time" not in request.GET and find_id(request.GET.get("q", "").strip()) is not None:
        return [TIME_TITLES[ALL_TIME], *chosen]
    return [TIME_TITLES.get(request.GET.get("time", ""), TIME_TITLES[USUAL_TIME]), *chosen]


def _names_like(aspect: TrafficCounts.Aspect, words: str) -> list[str]:
    """Return the names of a grouping that contain these words, however few requests they have."""
    wanted = {"aspect": aspect, "name__icontains": words}
    slots = TrafficSlot.objects.filter(minutes=60, **wanted).values_list("name", flat=True).distinct()
    notes = TrafficDelta.objects.filter(**wanted).values_list("name", flat=True).distinct()
    return sorted({*slots[:_ALIKE], *notes[:_ALIKE]})


def _links_of(row: RequestLog) -> dict[str, Link]:
    """Return names and pages of a row's ids, without removed ones."""
    tables: tuple[tuple[str, Any, str], ...] = (
        ("organization_id", Organization, "name"),
        ("project_id", Project, "name"),
        ("api_key_id", ApiKey, "description"),
        ("provider_key_id", ProviderKey, "provider"),
    )
    links = {}
    for column, table, name in tables:
        identifier = getattr(row, column)
        found = table.objects.filter(pk=identifier).values_list(name, flat=True).first() if identifier else None
        if found is not None:
            page = reverse(f"admin:{table._meta.label_lower.replace('.', '_')}_change", args=[identifier])
            links[column] = Link(f"{found} ({identifier})", page)
    return links
