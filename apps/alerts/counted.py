"""Reads of totals for alerts: spending by day, models in use, the answers of the last minutes, used shares of limits.

Each read serves many organizations. Daily totals come from the roll-ups; the roll-ups have no minutes of a single
organization, so its last answers are read from the log, a bounded number through an index. A further kind of limit
joins by a function in `SOURCES`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import F, Q, QuerySet

from apps.kernel.money import NANO
from apps.kernel.pages.number_formats import usd
from apps.keys.models import ApiKey
from apps.limits import counters
from apps.limits.applied import apply_rule, describe, rule_of
from apps.limits.key_limits import USAGE_LIMIT, find_key_limits
from apps.limits.models import Limit
from apps.limits.plan_limits import find_plan_limits
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


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit and its used part. `subject` identifies the limit; `page` is where it can be changed.

    Amounts are USD unless `unit` names another: `requests`, `output tokens`. A limit that refuses nothing only warns.
    """

    organization_id: UUID
    subject: str
    # In sentences: `the usage limit of the API key Web shop`.
    words: str
    used: Decimal
    limit: Decimal
    page: str
    unit: str = ""
    refuses: bool = True

    @property
    def text(self) -> str:
        """The used part and the limit: `$8.00 of $10.00 is used`, `800 of 1,000 requests are used`."""
        if self.unit:
            return f"{self.used:,.0f} of {self.limit:,.0f} {self.unit} are used"
        return f"{usd(self.used)} of {usd(self.limit)} is used"

    @property
    def share(self) -> Decimal:
        """The used share of one."""
        return self.used / self.limit if self.limit else Decimal(1)


# Yields the limits of organizations of which at least a share of one is used at a time.
LimitSource = Callable[[Collection[UUID], Decimal, datetime], Iterable[LimitUse]]


def _limits_of_keys(organizations: Collection[UUID], share: Decimal, now: datetime) -> Iterator[LimitUse]:
    """Yield the usage limits of API keys, and their limits for an hour, day, week or month."""
    # Usage in a period is at most the total usage.
    keys = _keys_of(organizations).filter(
        Q(usage_limit__gt=0, usage__gte=F("usage_limit") * share)
        | (Q(period_limit__gt=0, usage__gte=F("period_limit") * share) & ~Q(period=""))
    )
    for key in keys:
        for one in find_key_limits(key, key.project.organization_id, now):
            if one.amount and one.used >= one.amount * share:
                is_usage, window = one.applied.rule.field == USAGE_LIMIT, one.applied.rule.window
                yield LimitUse(
                    key.project.organization_id,
                    f"key:{key.id}" if is_usage else f"key-period:{key.id}",
                    f"the {'usage limit' if is_usage else f'limit per {window}'} of the API key {key.description}",
                    one.used,
                    one.amount,
                    f"keys/{key.id}",
                )


def _limits(organizations: Collection[UUID], share: Decimal, now: datetime) -> Iterator[LimitUse]:
    """Yield the limits of organizations, projects, members, keys, models and single end users, and of plans.

    Left out are limits a minute, which are over before an alert is read, and those of each end user.
    """
    rows = Limit.objects.filter(organization__in=organizations).exclude(window=Limit.Window.MINUTE)
    rows = rows.exclude(scope=Limit.Scope.END_USER, end_user="").order_by("id")
    of_plans = [one for one in find_plan_limits(organizations) if one.window != Limit.Window.MINUTE]
    applied = {row: apply_rule(rule_of(row), row.end_user, now.timestamp()) for row in [*rows, *of_plans]}
    counted = counters.usage_of(applied.values())
    for row, one in applied.items():
        used = counted[one.counter_id]
        if one.capacity and used >= one.capacity * share:
            unit, divisor = ("", NANO) if one.rule.is_money else (row.counts.replace("_", " "), Decimal(1))
            yield LimitUse(
                row.organization_id,
                f"limit:{row.id}",
                f"the {describe(one)},",
                Decimal(used) / divisor,
                Decimal(one.capacity) / divisor,
                "limits",
                unit,
                refuses=one.rule.refuses and not one.rule.reroutes_to,
            )


def _keys_of(organizations: Collection[UUID]) -> QuerySet[ApiKey]:
    """Return the active keys of organizations, with their projects."""
    keys = ApiKey.objects.filter(project__organization__in=organizations, status=ApiKey.Status.ACTIVE)
    return keys.select_related("project").order_by("id")


SOURCES: Final[tuple[LimitSource, ...]] = (_limits_of_keys, _limits)


def limits_used(organizations: Collection[UUID], share: Decimal, now: datetime) -> Iterator[LimitUse]:
    """Yield the limits of organizations of which at least `share` (of one) is used."""
    for source in SOURCES:
        yield from source(organizations, share, now)
