"""What happened on each day, added up: the days of a scope, newest first, exact to the row that was just written.

Reads days and what is not yet folded into them in one statement, so that nothing is seen twice or missed while it is
being moved. Must never know HTTP, nor who asks: a scope says what may be seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from apps.logs.models import ActivityDay, ActivityDelta
from apps.logs.rollup import SUMS
from apps.organizations.plans import PLANS

# Days of activity that are kept, today included, on every plan.
KEPT_DAYS = max(limits.activity_days for limits in PLANS.values())
# What is told of each model.
_OF_A_MODEL = ("request_count", "input_tokens", "output_tokens", "total_tokens", "cost")


@dataclass(frozen=True, slots=True)
class ActivityScope:
    """The organizations whose activity may be seen; of one project or one key of theirs where that is set.

    With a key, its project is set as well.
    """

    organizations: frozenset[UUID]
    project_id: UUID | None = None
    api_key_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """UTC days, both included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class ModelOfDay:
    """What one model at one provider did on a day; sums by column, as exact decimal texts."""

    id: str
    provider: str
    sums: dict[str, str]


@dataclass(frozen=True, slots=True)
class Day:
    """What happened on a day: sums by column, as exact decimal texts, and the models, dearest first."""

    date: date
    sums: dict[str, str]
    models: list[ModelOfDay]


def window_of(now: datetime, *, days: int, first: date | None = None, last: date | None = None) -> Window:
    """Return the days asked for: from `first` to `last`, else `days` days up to `last`, which is today if unsaid.

    No further back than activity is kept.
    """
    today = now.astimezone(UTC).date()
    last = today if last is None else last
    first = last - timedelta(days=min(days - 1, (last - date.min).days)) if first is None else first
    return Window(max(first, kept_since(now)), last)


def kept_since(now: datetime) -> date:
    """Return the first day of which activity is kept."""
    return now.astimezone(UTC).date() - timedelta(days=KEPT_DAYS - 1)


def find_days(scope: ActivityScope, window: Window) -> list[Day]:
    """Return the days on which there were requests, newest first."""
    if not scope.organizations:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            _QUESTION,
            {
                "organizations": list(scope.organizations),
                "project": scope.project_id,
                "key": scope.api_key_id,
                "of_project": scope.project_id or ActivityDay.EVERY,
                "of_key": scope.api_key_id or ActivityDay.EVERY,
                "first": window.first,
                "last": window.last,
            },
        )
        return _days(cursor.fetchall())


_WANTED = "organization_id = ANY(%(organizations)s) AND date BETWEEN %(first)s AND %(last)s"
_COLUMNS = f"date, model, provider, {', '.join(SUMS)}"
_OF_DAY = ", ".join(f"trim_scale(sum({name}))::text" for name in SUMS)
_OF_MODEL = ", ".join(f"trim_scale(sum({name}))::text" if name in _OF_A_MODEL else "NULL" for name in SUMS)
_QUESTION = f"""
    WITH noted AS MATERIALIZED (
        SELECT {_COLUMNS} FROM {ActivityDay._meta.db_table}
        WHERE {_WANTED} AND project_id = %(of_project)s AND api_key_id = %(of_key)s
        UNION ALL
        SELECT {_COLUMNS} FROM {ActivityDelta._meta.db_table}
        WHERE {_WANTED}
            AND project_id = coalesce(%(project)s, project_id) AND api_key_id = coalesce(%(key)s, api_key_id)
    )
    (SELECT date, NULL, NULL, {_OF_DAY} FROM noted GROUP BY date HAVING sum(request_count) > 0 ORDER BY date DESC)
    UNION ALL
    (SELECT date, model, provider, {_OF_MODEL} FROM noted GROUP BY date, model, provider
    HAVING sum(request_count) > 0 ORDER BY date DESC, sum(cost) DESC, sum(request_count) DESC, model, provider)
"""  # noqa: S608 - names are ours
_PLACES = [(name, SUMS.index(name)) for name in _OF_A_MODEL]


def _days(rows: Iterable[Any]) -> list[Day]:
    """Return the days of rows in order: the days' own rows first, then those of models."""
    days: dict[date, Day] = {}
    for day, model, provider, *sums in rows:
        if model is None:
            days[day] = Day(day, dict(zip(SUMS, sums, strict=True)), [])
        else:
            days[day].models.append(ModelOfDay(model, provider, {name: sums[place] for name, place in _PLACES}))
    return list(days.values())
