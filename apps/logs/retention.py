"""How long rows of the log are shown and kept: as long as their organization's plan says.

Knows plans and days. Must never know what a row says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db import connection

from apps.logs import partitions
from apps.organizations.plans import PLANS, limits_of

# Rows removed by one statement: short enough to disturb nobody.
BATCH = 5_000


@dataclass(frozen=True, slots=True)
class Expired:
    """What was removed: whole days, and single rows of days that other organizations still keep."""

    days: list[date]
    rows: int


def visible_since(plan: str, now: datetime) -> datetime:
    """Return the moment before which an organization on `plan` sees no logs."""
    return now - timedelta(days=limits_of(plan).log_days)


def expire(now: datetime) -> Expired:
    """Drop the days that no plan keeps, and of later days the rows that their own plan does not."""
    longest = max(limits.log_days for limits in PLANS.values())
    days = partitions.drop_before((now - timedelta(days=longest)).date())
    shorter = [plan for plan, limits in PLANS.items() if limits.log_days < longest]
    return Expired(days, sum(_delete_before(visible_since(plan, now), plan) for plan in shorter))


def _delete_before(moment: datetime, plan: str) -> int:
    """Delete rows of organizations on `plan`, a batch at a time; return how many."""
    deleted = 0
    for day in partitions.existing():
        if day <= moment.date():
            while (rows := _delete_batch(day, moment, plan)) == BATCH:
                deleted += rows
            deleted += rows
    return deleted


def _delete_batch(day: date, moment: datetime, plan: str) -> int:
    name = partitions.name_of(day)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            DELETE FROM {name} WHERE ctid = ANY(ARRAY(
                SELECT row.ctid FROM {name} row
                JOIN organizations_organization organization ON organization.id = row.organization_id
                WHERE organization.plan = %s AND row.created_at < %s LIMIT %s
            ))
            """,  # noqa: S608 - the name is made from a date
            [plan, moment, BATCH],
        )
        return int(cursor.rowcount)
