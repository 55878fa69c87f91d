"""Replay of the last days under a limit that does not exist yet: the requests that it would have refused.

Days, weeks, months and all time are replayed from daily totals: the requests of a day count as alike, and days are
those of UTC. Minutes and hours are replayed request by request, from a bounded number of rows of the log. The usage of
requests is compared with the remaining amount, not their worst case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import ceil
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from apps.kernel.errors import InvalidRequest
from apps.kernel.money import NANO, ZERO
from apps.kernel.postgres import replica
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.keys.access import is_of_teams
from apps.keys.models import ApiKey
from apps.keys.provider_keys import find_by_alias
from apps.limits.applied import LimitRule, rule_of
from apps.limits.models import Limit
from apps.limits.windows import Window, WindowKind, window_at, windows_before
from apps.logs.models import ActivityDay, ActivityDelta, RequestLog
from apps.logs.retention import visible_to

# Days that are replayed, today included.
DAYS: Final = 30
# Rows that are read: of the log, the newest, and of daily totals.
MAX_REQUESTS, MAX_TOTALS = 20_000, 100_000
# Keys and members in the answer.
MAX_WORST: Final = 10
_BY_REQUEST: Final = (WindowKind.MINUTE, WindowKind.HOUR)


class _Use(NamedTuple):
    """Requests of a key: their number, the amount that the limit counts, in units, and their cost."""

    key_id: UUID
    requests: int
    units: int
    cost: Decimal


class _Step(NamedTuple):
    """Requests that count together: those of a day, or a single one."""

    moment: float
    uses: Sequence[_Use]


@dataclass
class RefusedUse:
    """Requests and USD in all, and those that would have been refused."""

    requests: int = 0
    cost: Decimal = ZERO
    refused_requests: int = 0
    refused_cost: Decimal = ZERO

    def add(self, use: _Use, refused: Decimal) -> None:
        """Add requests, a share of which is refused; a part of a request is a whole one."""
        self.requests += use.requests
        self.cost += use.cost
        self.refused_requests += ceil(round(use.requests * refused, 9))
        self.refused_cost += round(use.cost * refused, 9)


@dataclass
class LimitPreview:
    """The replay of a draft: in all, by day (UTC), and of the keys and members that it would have refused most.

    `is_cut`: there were more requests than are read; `first` is the first day that is complete.
    """

    first: date
    last: date
    granularity: str
    is_cut: bool
    total: RefusedUse = field(default_factory=RefusedUse)
    days: dict[date, RefusedUse] = field(default_factory=dict)
    keys: list[tuple[ApiKey, RefusedUse]] = field(default_factory=list)
    members: list[tuple[Any, RefusedUse]] = field(default_factory=list)


def preview_limit(draft: Limit, now: datetime) -> LimitPreview:
    """Return what a draft would have refused if it had been created `DAYS` days ago. Raises InvalidFields for a draft
    that cannot be replayed, InvalidRequest for too many keys. Raises DatabaseError."""
    if draft.scope == Limit.Scope.END_USER:
        raise InvalidFields([Issue("scope", "End users are not part of the log, so that nothing can be replayed")])
    rule, keys = rule_of(draft, find_by_alias(draft.organization_id, draft.model)), _keys_of(draft)
    today = now.astimezone(UTC).date()
    if rule.window in _BY_REQUEST:
        since = max(now - timedelta(days=DAYS), visible_to([draft.organization_id], now)[draft.organization_id])
        steps, cut_at = replica.read(lambda using: _requests(rule, keys, since, using))
        first, is_cut = (cut_at or since).astimezone(UTC).date(), cut_at is not None
    else:
        first, is_cut = today - timedelta(days=DAYS - 1), False
        steps = replica.read(lambda using: _days(rule, keys, first, using))
    found = LimitPreview(first, today, "request" if rule.window in _BY_REQUEST else "day", is_cut)
    by_key: defaultdict[UUID, RefusedUse] = defaultdict(RefusedUse)
    for step, refused in _replay(rule, steps, now.timestamp()):
        day = datetime.fromtimestamp(step.moment, UTC).date()
        together = _sum_of(step)
        found.total.add(together, refused)
        found.days.setdefault(day, RefusedUse()).add(together, refused)
        for use in step.uses:
            by_key[use.key_id].add(use, refused)
    _add_worst(found, by_key)
    return found


def _sum_of(step: _Step) -> _Use:
    """Return the use of all keys."""
    requests, cost = sum(use.requests for use in step.uses), sum((use.cost for use in step.uses), ZERO)
    return _Use(ActivityDay.EVERY, requests, sum(use.units for use in step.uses), cost)


def _replay(rule: LimitRule, steps: Iterable[_Step], now: float) -> Iterator[tuple[_Step, Decimal]]:
    """Yield each step with the share of it that is refused; refused requests do not count."""
    amount = rule.amount_at(now)
    capacity = int(amount * NANO) if rule.is_money else int(amount)
    used: defaultdict[int, int] = defaultdict(int)
    older: dict[int, list[Window]] = {}
    for step in steps:
        window = window_at(rule.window, rule.time_zone, step.moment, rule.first_day)
        if window.starts_at not in older:
            older[window.starts_at] = windows_before(window, rule.window, rule.time_zone, rule.rolling - 1)
        room = capacity - used[window.starts_at] - sum(used[one.starts_at] for one in older[window.starts_at])
        units = sum(use.units for use in step.uses)
        admitted = max(min(units, room), 0)
        refused = Decimal(units - admitted) / units if units else Decimal(0)
        if room <= 0 or (refused and rule.window in _BY_REQUEST):
            admitted, refused = 0, Decimal(1)
        used[window.starts_at] += admitted
        yield step, refused


def _keys_of(draft: Limit) -> QuerySet[ApiKey] | None:
    """Return the keys that a draft is for, also deleted ones; None where it is for all."""
    keys = ApiKey.objects.filter(project__organization=draft.organization_id)
    match draft.scope:
        case Limit.Scope.TEAM if draft.team_id is not None:
            return keys.filter(is_of_teams([draft.team_id]))
        case Limit.Scope.PROJECT:
            return keys.filter(project=draft.project_id)
        case Limit.Scope.MEMBER:
            return keys.filter(created_by=draft.member_id)
        case Limit.Scope.KEY if draft.api_key_id is not None:
            return keys.filter(pk=draft.api_key_id)
    return None


def _days(rule: LimitRule, keys: QuerySet[ApiKey] | None, first: date, using: str) -> list[_Step]:
    """Return the days from a first one on, with the use of each key."""
    conditions, parameters = ["organization_id = %(organization)s", "date >= %(first)s"], _parameters(rule, first)
    if keys is not None:
        conditions.append("api_key_id = ANY(%(keys)s::uuid[])")
        parameters["keys"] = list(keys.values_list("pk", flat=True))
    if rule.model:
        conditions.append("model = ANY(%(models)s)")
        parameters["models"] = _models_of(rule, first, using)
    if rule.provider:
        conditions.append("provider = %(provider)s")
    wanted = " AND ".join(conditions)
    columns = "date, api_key_id, request_count, input_tokens, output_tokens, cost"
    question = f"""
        SELECT date, api_key_id, sum(request_count)::bigint, sum(input_tokens)::bigint, sum(output_tokens)::bigint,
            sum(cost)
        FROM (
            SELECT {columns} FROM {ActivityDay._meta.db_table} WHERE {wanted} AND api_key_id <> %(every)s
            UNION ALL
            SELECT {columns} FROM {ActivityDelta._meta.db_table} WHERE {wanted}
        ) AS added GROUP BY date, api_key_id HAVING sum(request_count) > 0 ORDER BY date, api_key_id LIMIT %(most)s
    """  # noqa: S608 - names are ours
    with connections[using].cursor() as cursor:
        cursor.execute(question, parameters)
        rows = cursor.fetchall()
    if len(rows) > MAX_TOTALS:
        raise InvalidRequest("There are too many keys to replay; draft a limit of a project, a team or a key")
    by_day: defaultdict[date, list[_Use]] = defaultdict(list)
    for day, key_id, requests, read, written, cost in rows:
        by_day[day].append(_Use(key_id, requests, _units(rule, requests, read, written, cost), cost))
    # Noon is on this date in most time zones.
    return [_Step(datetime.combine(day, time(12), UTC).timestamp(), uses) for day, uses in by_day.items()]


def _requests(
    rule: LimitRule, keys: QuerySet[ApiKey] | None, since: datetime, using: str
) -> tuple[list[_Step], datetime | None]:
    """Return the newest requests since a moment, the oldest first; and, where there were more than are read, when the
    oldest that was read was made, whether the limit covers it or not."""
    rows = RequestLog.objects.using(using).filter(organization_id=rule.organization_id, created_at__gte=since)
    if keys is not None:
        rows = rows.filter(api_key_id__in=list(keys.values_list("pk", flat=True)))
    columns = ("created_at", "api_key_id", "used_model", "used_provider", "prompt_tokens", "completion_tokens", "cost")
    found = list(rows.order_by("-created_at", "-id").values_list(*columns)[: MAX_REQUESTS + 1])
    steps = [
        _Step(at.timestamp(), [_Use(key_id, 1, _units(rule, 1, read or 0, written or 0, cost or ZERO), cost or ZERO)])
        for at, key_id, model, provider, read, written, cost in reversed(found[:MAX_REQUESTS])
        if rule.covers(model, provider)
    ]
    return steps, found[MAX_REQUESTS - 1][0] if len(found) > MAX_REQUESTS else None


def _units(rule: LimitRule, requests: int, read: int, written: int, cost: Decimal) -> int:
    """Return the amount that a limit counts, in units."""
    amounts: dict[str, int] = {
        Limit.Counts.USD: int(cost * NANO),
        Limit.Counts.REQUESTS: requests,
        Limit.Counts.TOKENS: read + written,
        Limit.Counts.INPUT_TOKENS: read,
        Limit.Counts.OUTPUT_TOKENS: written,
    }
    return amounts[rule.counts]


def _models_of(rule: LimitRule, first: date, using: str) -> list[str]:
    """Return the models that answered since a day and that the limit covers."""
    found: set[str] = set()
    for table in (ActivityDay, ActivityDelta):
        rows = table.objects.using(using).filter(organization_id=rule.organization_id, date__gte=first)
        found.update(rows.values_list("model", flat=True).distinct())
    return sorted(model for model in found if rule.covers(model, rule.provider))


def _parameters(rule: LimitRule, first: date) -> dict[str, Any]:
    return {
        "organization": rule.organization_id,
        "first": first,
        "every": ActivityDay.EVERY,
        "provider": rule.provider,
        "most": MAX_TOTALS + 1,
    }


def _add_worst(found: LimitPreview, by_key: dict[UUID, RefusedUse]) -> None:
    """Add the keys and members of which most would have been refused."""
    refused = {key_id: sums for key_id, sums in by_key.items() if sums.refused_requests or sums.refused_cost}
    keys = ApiKey.objects.filter(pk__in=refused).select_related("created_by")
    members: dict[Any, RefusedUse] = {}
    for key in keys:
        found.keys.append((key, refused[key.pk]))
        sums = members.setdefault(key.created_by, RefusedUse())
        for name, value in vars(refused[key.pk]).items():
            setattr(sums, name, getattr(sums, name) + value)
    found.members = list(members.items())
    for worst in (found.keys, found.members):
        worst.sort(key=lambda one: (one[1].refused_cost, one[1].refused_requests), reverse=True)
        del worst[MAX_WORST:]
