"""How long rows of the log are shown and kept: as long as their organization's plan says, or an agreement of its own.

Knows plans, days and which columns of a row say something. Must never know what they say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from uuid import UUID

from django.db import connection
from django.db.models import OuterRef, Subquery

from apps.logs import partitions
from apps.logs.activity import kept_since
from apps.logs.models import ActivityDay, ActivityDelta, LogRetention
from apps.organizations.models import Organization, RetentionLevel
from apps.organizations.plans import PLANS, limits_of

# Rows removed or blanked by one statement: short enough to disturb nobody.
BATCH = 5_000
# What of a row each level forbids; the level below forbids it as well. Identifiers, model, tokens, cost, status and
# times are the bill, and stay.
_CONTENT = ("messages", "content", "reasoning_content", "tools", "tool_results", "response_format")
_METADATA = (
    *("finish_reason", "temperature", "max_tokens", "top_p", "frequency_penalty", "presence_penalty"),
    *("reasoning_effort", "reasoning_max_tokens", "tool_choice", "custom_headers", "source", "routing_metadata"),
)
FORBIDDEN = {RetentionLevel.METADATA: _CONTENT, RetentionLevel.NONE: (*_CONTENT, *_METADATA)}
_LEVELS = [RetentionLevel.NONE, RetentionLevel.METADATA, RetentionLevel.RETAIN]


@dataclass(frozen=True, slots=True)
class ExpiredLogs:
    """What was removed: whole days, single rows of days that other organizations still keep, and sums of days."""

    days: list[date]
    rows: int
    activity: int = 0


def visible_since(plan: str, now: datetime, agreed_days: int | None = None) -> datetime:
    """Return the moment before which an organization on `plan` sees no logs; `agreed_days` go before the plan's."""
    return now - timedelta(days=limits_of(plan).log_days if agreed_days is None else agreed_days)


def visible_to(organizations: Collection[UUID], now: datetime) -> dict[UUID, datetime]:
    """Return the moment before which each of these organizations sees no logs."""
    agreed = LogRetention.objects.filter(organization=OuterRef("pk")).values("days")
    rows = Organization.objects.filter(id__in=organizations).values_list("id", "plan", Subquery(agreed))
    return {identifier: visible_since(plan, now, days) for identifier, plan, days in rows}


def expire(now: datetime) -> ExpiredLogs:
    """Drop the days that are past for everybody with rows in them; of other days, remove the rows that are past."""
    dropped, rows = [], 0
    for day in partitions.existing():
        if day >= partitions.upcoming(now)[0]:
            break
        with partitions.unless_gone():
            if _is_past(day, now) and partitions.drop(day, partial(_is_past, day, now)):
                dropped.append(day)
            else:
                rows += _delete_of_day(day, now)
    past = {"date__lt": kept_since(now)}
    sums = ActivityDelta.objects.filter(**past).delete()[0] + ActivityDay.objects.filter(**past).delete()[0]
    return ExpiredLogs(dropped, rows, sums)


def blank() -> int:
    """Blank what rows hold beyond the level that their organization has by now; return how many rows.

    Rows that are written late, for requests that began before the level was lowered, are found by the next run.
    """
    blanked = 0
    for day in partitions.existing():
        with partitions.unless_gone():
            blanked += _blank_day(day)
    return blanked


def find_excess_levels(kept: Collection[tuple[UUID, str]]) -> Iterator[tuple[UUID, str, RetentionLevel]]:
    """Yield organization, level and the level it has by now, of organizations whose rows are kept as more than that."""
    levels = _levels_of({organization_id for organization_id, _ in kept})
    for organization_id, level in kept:
        allowed = levels.get(organization_id, RetentionLevel(level))
        if _LEVELS.index(RetentionLevel(level)) > _LEVELS.index(allowed):
            yield organization_id, level, allowed


def _is_past(day: date, now: datetime) -> bool:
    """Tell whether a day is over for every organization that has rows in it."""
    ends_at = _begin_of(day + timedelta(days=1))
    return all(moment >= ends_at for moment in _cutoffs(day, now).values())


def _cutoffs(day: date, now: datetime) -> dict[UUID, datetime]:
    """Return the moment since which each organization with rows on a day keeps them; strangers as long as anyone."""
    organizations = [UUID(text) for (text,) in _pairs(day, ["organization_id"], "true")]
    longest = now - timedelta(days=max(limits.log_days for limits in PLANS.values()))
    return dict.fromkeys(organizations, longest) | visible_to(organizations, now)


def _delete_of_day(day: date, now: datetime) -> int:
    begins_at, deleted = _begin_of(day), 0
    for organization_id, moment in _cutoffs(day, now).items():
        if moment > begins_at:
            deleted += _in_batches(
                f"DELETE FROM {partitions.name_of(day)}",  # noqa: S608 - the name is made from a date
                day,
                "organization_id = %s AND created_at < %s",
                [organization_id, moment],
            )
    return deleted


def _blank_day(day: date) -> int:
    condition, blanked = f"retention_level <> '{RetentionLevel.NONE}'", 0
    kept = [(UUID(owner), level) for owner, level in _pairs(day, ["organization_id", "retention_level"], condition)]
    for organization_id, level, allowed in find_excess_levels(kept):
        nothing = ", ".join(f"{name} = NULL" for name in FORBIDDEN[allowed])
        blanked += _in_batches(
            f"UPDATE {partitions.name_of(day)} SET retention_level = '{allowed}', {nothing}, "  # noqa: S608 - names are ours
            "error_details = error_details - 'message'",
            day,
            "organization_id = %s AND retention_level = %s",
            [organization_id, level],
        )
    return blanked


def _levels_of(organizations: Collection[UUID]) -> Mapping[UUID, RetentionLevel]:
    rows = Organization.objects.filter(id__in=organizations).values_list("id", "retention_level")
    return {identifier: RetentionLevel(level) for identifier, level in rows}


def _in_batches(change: str, day: date, condition: str, values: list[UUID | datetime | str]) -> int:
    """Change the rows of a day that fulfil a condition, a batch at a time; return how many.

    Rows that another process is changing are left to it.
    """
    rows = f"SELECT ctid FROM {partitions.name_of(day)} WHERE {condition} LIMIT %s FOR UPDATE SKIP LOCKED"  # noqa: S608 - names are ours
    changed = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(f"{change} WHERE ctid = ANY(ARRAY({rows}))", [*values, BATCH])
            batch = int(cursor.rowcount)
        changed += batch
        if batch < BATCH:
            return changed


def _pairs(day: date, columns: list[str], condition: str) -> Iterator[tuple[str, ...]]:
    """Yield the different values of columns that a day's rows have, as texts.

    Looks only at where one value ends and the next begins in the index, however many rows have the same.
    """
    name, listed = partitions.name_of(day), ", ".join(columns)
    following = f"SELECT {listed} FROM {name} WHERE {condition}"  # noqa: S608 - the name is made from a date
    after = f"({listed}) > ({', '.join(f'found.{column}' for column in columns)})"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH RECURSIVE found AS (
                ({following} ORDER BY {listed} LIMIT 1)
                UNION ALL
                SELECT next.* FROM found CROSS JOIN LATERAL (
                    {following} AND {after} ORDER BY {listed} LIMIT 1
                ) AS next
            )
            SELECT {", ".join(f"{column}::text" for column in columns)} FROM found
            """  # noqa: S608 - names are ours
        )
        yield from cursor.fetchall()


def _begin_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
