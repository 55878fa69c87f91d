"""Filters of the request log in the admin: time, status, model, provider, organization, finish reason.

The traffic roll-up supplies the choices, and the hours in which they occur, so that only matching parts of the log are
searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import Max, Min, Q, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

from apps.kernel.ids import find_id
from apps.logs.models import TrafficCounts, TrafficDelta, TrafficSlot
from apps.organizations.models import Organization

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
