"""Retention of violations: they are kept as long as the plan keeps the logs that they belong to."""
# alone: tasks.py only starts work, which is elsewhere

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection

from apps.organizations.plans import PLANS

# Rows removed by one statement: small enough not to block others.
BATCH = 5_000


def expire(now: datetime) -> int:
    """Remove what each plan keeps no longer; return how many."""
    return sum(_delete_before(now - timedelta(days=limits.log_days), plan) for plan, limits in PLANS.items())


def _delete_before(moment: datetime, plan: str) -> int:
    deleted = 0
    while (rows := _delete_batch(moment, plan)) == BATCH:
        deleted += rows
    return deleted + rows


def _delete_batch(moment: datetime, plan: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM guardrails_violation WHERE ctid = ANY(ARRAY(
                SELECT row.ctid FROM guardrails_violation row
                JOIN organizations_organization organization ON organization.id = row.organization_id
                WHERE organization.plan = %s AND row.created_at < %s LIMIT %s
            ))
            """,
            [plan, moment, BATCH],
        )
        return int(cursor.rowcount)
