"""Retention of logs: how long rows are visible and kept, by plan or agreement, and which columns each level clears."""

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

# Rows deleted or cleared by one statement: small enough not to block others.
BATCH = 5_000
# Columns that each level forbids; lower levels forbid them as well. Identifiers, model, tokens, cost, status and times
# are billing data, and stay.
_CONTENT = (
    *("messages", "content", "reasoning_content", "tools", "tool_results", "response_format"),
    *("refusal", "tool_calls", "choices", "citations", "media", "media_data"),
)
_METADATA = (
    *("finish_reason", "temperature", "max_tokens", "top_p", "frequency_penalty", "presence_penalty"),
    *("reasoning_effort", "reasoning_max_tokens", "tool_choice", "custom_headers", "source", "routing_metadata"),
    *("tool_call_counts", "session_id", "user_agent"),
)
FORBIDDEN = {RetentionLevel.METADATA: _CONTENT, RetentionLevel.NONE: (*_CONTENT, *_METADATA)}
_LEVELS = [RetentionLevel.NONE, RetentionLevel.METADATA, RetentionLevel.RETAIN]


@dataclass(frozen=True, slots=True)
class ExpiredLogs:
    """The deleted data: whole days, single rows of days that other organizations still keep, and daily sums."""

    days: list[date]
    rows: int
    activity: int = 0


def visible_since(plan: str, now: datetime, agreed_days: int | None = None) -> datetime:
    """Return the start of the visible log for an organization on `plan`; `agreed_days` override the plan's."""
    return now - timedelta(days=limits_of(plan).log_days if agreed_days is None else agreed_days)


def visible_to(organizations: Collection[UUID], now: datetime) -> dict[UUID, datetime]:
    """Return the start of the visible log of each organization."""
    agreed = LogRetention.objects.filter(organization=OuterRef("pk")).values("days")
    rows = Organization.objects.filter(id__in=organizations).values_list("id", "plan", Subquery(agreed))
    return {identifier: visible_since(plan, now, days) for identifier, plan, days in rows}


def expire(now: datetime) -> ExpiredLogs:
    """Drop the days that have expired for all organizations with rows; in other days, delete expired rows."""
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
    """Clear columns that exceed the organizations' current retention levels; return how many rows.

    Late rows of requests that began before the level was lowered are found by the next run.
    """
    blanked = 0
    for day in partitions.existing():
        with partitions.unless_gone():
            blanked += _blank_day(day)
    return blanked


def find_excess_levels(kept: Collection[tuple[UUID, str]]) -> Iterator[tuple[UUID, str, RetentionLevel]]:
    """Yield organization, row level and current level, for organizations with rows above their current level."""
    levels = _levels_of({organization_id for organization_id, _ in kept})
    for organization_id, level in kept:
        allowed = levels.get(organization_id, RetentionLevel(level))
        if _LEVELS.index(RetentionLevel(level)) > _LEVELS.index(allowed):
            yield organization_id, level, allowed


def _is_past(day: date, now: datetime) -> bool:
    """Return whether a day has expired for every organization with rows in it."""
    ends_at = _begin_of(day + timedelta(days=1))
    return all(moment >= ends_at for moment in _cutoffs(day, now).values())


def _cutoffs(day: date, now: datetime) -> dict[UUID, datetime]:
    """Return the start of retention for each organization with rows on a day; for unknown ones the longest."""
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
    """Change the rows of a day that meet a condition, in batches; return how many.

    Rows locked by another process are skipped.
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
    """Yield the distinct values of columns in a day's rows, as texts.

    It skips through the index from one value to the next, however many rows share it.
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
