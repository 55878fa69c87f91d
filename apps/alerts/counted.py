"""Reads of totals for alerts: spending by day, models in use, and the answers of the last minutes.

Each read serves many organizations with one statement. Daily totals come from the roll-ups; the roll-ups have no
minutes of a single organization, so its last answers are read from the log, a bounded number through an index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection

from apps.logs.models import ActivityDay, ActivityDelta

# The newest answers of an organization that are read at most.
MAX_ANSWERS: Final = 5_000
_DAYS, _DELTAS = ActivityDay._meta.db_table, ActivityDelta._meta.db_table
# One statement, so that a fold of deltas into days in between counts no row twice and misses none.
_SUMS: Final = f"""
    SELECT organization_id, date, model, provider, request_count, cost, credits_cost FROM {_DAYS}
    WHERE organization_id = ANY(%(organizations)s) AND project_id = %(every)s AND api_key_id = %(every)s
        AND date >= %(first)s
    UNION ALL
    SELECT organization_id, date, model, provider, request_count, cost, credits_cost FROM {_DELTAS}
    WHERE organization_id = ANY(%(organizations)s) AND date >= %(first)s
"""  # noqa: S608 - names are ours
_SPENDING: Final = f"""
    SELECT organization_id, date, sum(cost), sum(credits_cost) FROM ({_SUMS}) AS sums GROUP BY organization_id, date
"""  # noqa: S608 - names are ours
_IN_USE: Final = f"""
    SELECT organization_id, provider, model FROM ({_SUMS}) AS sums
    WHERE provider <> '' GROUP BY organization_id, provider, model HAVING sum(request_count) > 0
"""  # noqa: S608 - names are ours
_ANSWERS: Final = """
    SELECT asked.id, named.aspect, named.name, count(*), count(*) FILTER (WHERE answer.has_error),
        percentile_disc(0.95) WITHIN GROUP (ORDER BY answer.duration)
    FROM unnest(%s::uuid[]) AS asked (id)
    CROSS JOIN LATERAL (
        SELECT coalesce(nullif(used_model, ''), requested_model) AS model, nullif(used_provider, '') AS provider,
            has_error, duration
        FROM request_log WHERE organization_id = asked.id AND created_at >= %s AND created_at <= %s
        ORDER BY created_at DESC, id DESC LIMIT %s
    ) AS answer
    CROSS JOIN LATERAL (VALUES ('model', answer.model), ('provider', answer.provider)) AS named (aspect, name)
    WHERE named.name IS NOT NULL GROUP BY asked.id, named.aspect, named.name
"""


class Spending(NamedTuple):
    """The spending of one day in USD: in total, and the part that was paid with credits."""

    total: Decimal
    credits: Decimal


class Answers(NamedTuple):
    """The answers of one model or provider: how many, how many with an error, and the p95 of duration in ms."""

    total: int
    errors: int
    p95: int


def spending_by_day(organizations: Collection[UUID], first: date) -> Mapping[UUID, Mapping[date, Spending]]:
    """Return the spending of each organization by day (UTC), from `first` on."""
    found: dict[UUID, dict[date, Spending]] = defaultdict(dict)
    for organization_id, day, total, credits in _read(_SPENDING, organizations, first):
        found[organization_id][day] = Spending(total, credits)
    return found


def offers_in_use(organizations: Collection[UUID], first: date) -> Mapping[UUID, set[tuple[str, str]]]:
    """Return the providers and models that each organization has used from `first` on, as pairs of ids."""
    found: dict[UUID, set[tuple[str, str]]] = defaultdict(set)
    for organization_id, provider, model in _read(_IN_USE, organizations, first):
        found[organization_id].add((provider, model))
    return found


def recent_answers(
    organizations: Collection[UUID], since: datetime, until: datetime
) -> Mapping[UUID, Mapping[tuple[str, str], Answers]]:
    """Return the answers of each organization by aspect (`model`, `provider`) and name, of its newest in a period."""
    found: dict[UUID, dict[tuple[str, str], Answers]] = defaultdict(dict)
    with connection.cursor() as cursor:
        cursor.execute(_ANSWERS, [list(organizations), since, until, MAX_ANSWERS])
        for organization_id, aspect, name, total, errors, p95 in cursor.fetchall():
            found[organization_id][aspect, name] = Answers(total, errors, p95)
    return found


def _read(statement: str, organizations: Collection[UUID], first: date) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"organizations": list(organizations), "every": ActivityDay.EVERY, "first": first})
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
