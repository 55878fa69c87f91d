"""Referral rewards: one percent of a referred organization's credit-paid usage, day by day (UTC).

Only complete days count. Each organization's day is paid once, under an id derived from both.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from uuid import UUID, uuid5

from django.db import connection
from django.utils import timezone

from apps.billing import ledger
from apps.kernel.money import DECIMAL_PLACES

SHARE = Decimal("0.01")
# Days that are checked again, in case the task did not run.
DAYS = 7
_REFERENCES = UUID("6f0a3c52-5d0e-4a55-9c0c-2d5b6f1f9a10")
# Owners of both organizations would pay themselves.
_USE = """
    SELECT referred.id, referred.referred_by_id, -sum(entry.credits)
    FROM organizations_organization referred
    JOIN organizations_organization referrer ON referrer.id = referred.referred_by_id AND referrer.status <> 'deleted'
    JOIN billing_ledgerentry entry ON entry.organization_id = referred.id AND entry.kind = 'usage'
        AND entry.created_at >= %s AND entry.created_at < %s
    WHERE referred.id <> referrer.id AND NOT EXISTS (
        SELECT FROM organizations_membership here JOIN organizations_membership there USING (user_id)
        WHERE here.organization_id = referred.id AND there.organization_id = referrer.id
            AND here.role = 'owner' AND there.role = 'owner'
    )
    GROUP BY 1, 2 HAVING sum(entry.credits) < 0 ORDER BY 1
"""


def pay_referrers() -> int:
    """Pay for complete days; return how many payments were new."""
    today = timezone.now().astimezone(UTC).date()
    return sum(_pay_day(today - timedelta(days=ago)) for ago in range(DAYS, 0, -1))


def _pay_day(day: date) -> int:
    begins_at = datetime.combine(day, datetime.min.time(), UTC)
    with connection.cursor() as cursor:
        cursor.execute(_USE, [begins_at, begins_at + timedelta(days=1)])
        rows = cursor.fetchall()
    return sum(
        ledger.reward(referrer, share_of(paid), uuid5(_REFERENCES, f"{referred}:{day}"))
        for referred, referrer, paid in rows
    )


def share_of(paid: Decimal) -> Decimal:
    """Return the referrer's share of an amount (USD), rounded down to the ledger's resolution."""
    return (paid * SHARE).quantize(Decimal(1).scaleb(-DECIMAL_PLACES), ROUND_DOWN)
