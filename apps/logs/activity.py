"""Activity: the daily totals of a scope, newest first, exact up to the latest row.

It reads days and the deltas that are not folded into them in one statement, so that no row is counted twice or missed
during a fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from apps.kernel.postgres.replica import PRIMARY
from apps.logs.models import ActivityDay, ActivityDelta
from apps.logs.rollup import SUMS
from apps.organizations.plans import PLANS

# Days of activity that are kept on every plan, today included.
KEPT_DAYS = max(limits.activity_days for limits in PLANS.values())
# The sums of each model, by their names in the API.
_MODEL_SUMS = {
    "requestCount": "request_count",
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "cost": "cost",
}


@dataclass(frozen=True, slots=True)
class ActivityScope:
    """The organizations whose activity may be seen; limited to one project or key, or to a set of keys, if set.

    With a key, its project is set as well.
    """

    organizations: frozenset[UUID]
    project_id: UUID | None = None
    api_key_id: UUID | None = None
    # The keys of a team, also deleted ones; None without one.
    key_ids: frozenset[UUID] | None = None


@dataclass(frozen=True, slots=True)
class ActivityWindow:
    """UTC days, both included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class ActivityTotals:
    """A day: sums by column, as exact decimal texts, and the totals of each model, most expensive first.

    The models are JSON as in the answer, `[{id, provider, …}]`: a year may have thousands of them, and PostgreSQL
    writes them much faster than Python objects could be built.
    """

    date: date
    sums: dict[str, str]
    models: str


def window_of(now: datetime, *, days: int, first: date | None = None, last: date | None = None) -> ActivityWindow:
    """Return the requested days: from `first` to `last`, else `days` days up to `last`, today by default.

    The window starts no earlier than activity is kept.
    """
    today = now.astimezone(UTC).date()
    last = today if last is None else last
    first = last - timedelta(days=min(days - 1, (last - date.min).days)) if first is None else first
    return ActivityWindow(max(first, kept_since(now)), last)


def kept_since(now: datetime) -> date:
    """Return the first day with activity."""
    return now.astimezone(UTC).date() - timedelta(days=KEPT_DAYS - 1)


def find_days(scope: ActivityScope, window: ActivityWindow, *, using: str = PRIMARY) -> list[ActivityTotals]:
    """Return the days with requests, newest first."""
    if not scope.organizations:
        return []
    with connections[using].cursor() as cursor:
        cursor.execute(
            _QUESTION if scope.key_ids is None else _QUESTION_OF_KEYS,
            {
                "organizations": list(scope.organizations),
                "project": scope.project_id,
                "key": scope.api_key_id,
                "keys": list(scope.key_ids or ()),
                "of_project": scope.project_id or ActivityDay.EVERY,
                "of_key": scope.api_key_id or ActivityDay.EVERY,
                "first": window.first,
                "last": window.last,
            },
        )
        return [
            ActivityTotals(day, dict(zip(SUMS, sums, strict=True)), models) for day, models, *sums in cursor.fetchall()
        ]


def sum_spending(
    organization_id: UUID, api_keys: Mapping[UUID, UUID], *, first: date, since: Mapping[str, date]
) -> dict[UUID, dict[str, Decimal]]:
    """Return the spending of API keys from a first day on, in USD, by key and name; keys without any are missing.

    `api_keys` are the projects of the keys, by key. `usage` is paid from credits, and `byok_usage` with the
    organization's own credentials. `since` are later days by a name, such as `daily`, for the spending from that day
    on: `usage_daily`, `byok_usage_daily`.
    """
    sums = {
        f"{name}{ending}": Coalesce(Sum(column, filter=Q(date__gte=day)), Decimal(0))
        for name, column in (("usage", "credits_cost"), ("byok_usage", "api_keys_cost"))
        for ending, day in (("", first), *((f"_{name}", day) for name, day in since.items()))
    }

    def of_keys(rows: type[ActivityDay | ActivityDelta]) -> QuerySet[Any, tuple[Any, ...]]:
        mine = rows._default_manager.filter(organization_id=organization_id, date__gte=first)
        mine = mine.filter(project_id__in=set(api_keys.values()), api_key_id__in=list(api_keys))
        return mine.order_by().values("api_key_id").annotate(**sums).values_list("api_key_id", *sums)

    found: dict[UUID, dict[str, Decimal]] = {}
    # One statement, as in `find_days`.
    for key_id, *amounts in of_keys(ActivityDay).union(of_keys(ActivityDelta), all=True):
        known = found.setdefault(key_id, dict.fromkeys(sums, Decimal(0)))
        for name, amount in zip(sums, amounts, strict=True):
            known[name] += amount
    return found


def has_any(organization_id: UUID) -> bool:
    """Return whether an organization had any request, as far back as activity is kept."""
    # Deltas first: one that is folded meanwhile is then found in its day.
    return any(rows.objects.filter(organization_id=organization_id).exists() for rows in (ActivityDelta, ActivityDay))


_WANTED = "organization_id = ANY(%(organizations)s) AND date BETWEEN %(first)s AND %(last)s"
_COLUMNS = f"date, model, provider, {', '.join(SUMS)}"
_OF_DAY = ", ".join(f"trim_scale(sum({name}))::text AS {name}" for name in SUMS)
_OF_MODEL = ", ".join(f"trim_scale(sum({name})) AS {name}" for name in _MODEL_SUMS.values())
_MODEL_FIELDS = ", ".join(f"'{wire_name}', {name}" for wire_name, name in _MODEL_SUMS.items())
_OF_SET = "api_key_id = ANY(%(keys)s::uuid[])"
_OF_DAYS = "project_id = %(of_project)s AND api_key_id = %(of_key)s"
_OF_DELTAS = "project_id = coalesce(%(project)s, project_id) AND api_key_id = coalesce(%(key)s, api_key_id)"
_ADDED = f"""
        SELECT {_COLUMNS} FROM {ActivityDay._meta.db_table} WHERE {_WANTED} AND {{of_days}}
        UNION ALL
        SELECT {_COLUMNS} FROM {ActivityDelta._meta.db_table} WHERE {_WANTED} AND {{of_deltas}}
"""  # noqa: S608 - names are ours
_SUMMED = f"""
    WITH added AS MATERIALIZED (
        {{added}}
    ), of_model AS (
        SELECT date, model, provider, {_OF_MODEL} FROM added GROUP BY date, model, provider
        HAVING sum(request_count) > 0
    ), models_of_day AS (
        SELECT date, json_agg(
            json_build_object('id', model, 'provider', provider, {_MODEL_FIELDS})
            ORDER BY cost DESC, request_count DESC, model, provider
        )::text AS models FROM of_model GROUP BY date
    ), of_day AS (
        SELECT date, {_OF_DAY} FROM added GROUP BY date HAVING sum(request_count) > 0
    )
    SELECT date, coalesce(models, '[]'), {", ".join(SUMS)}
    FROM of_day LEFT JOIN models_of_day USING (date) ORDER BY date DESC
"""  # noqa: S608 - names are ours
_QUESTION = _SUMMED.format(added=_ADDED.format(of_days=_OF_DAYS, of_deltas=_OF_DELTAS))
# For a set of keys, the sums of each key are added up.
_QUESTION_OF_KEYS = _SUMMED.format(added=_ADDED.format(of_days=_OF_SET, of_deltas=_OF_SET))
