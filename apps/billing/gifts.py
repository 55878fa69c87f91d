"""Gifts: credits granted by an operator, or to the organization that referred another, one percent of its usage a day.

Referrals are paid for complete days only (UTC), each organization's day once, under an id derived from both.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from uuid import UUID, uuid5

from django.db import connection, transaction
from django.utils import timezone

from apps.billing import ledger
from apps.billing.models import Transaction
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import DECIMAL_PLACES
from apps.kernel.postgres.rows import lock_row
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.journal import audit
from apps.organizations.models import Organization


@transaction.atomic
def give(*, organization: Organization, amount: Decimal, description: str) -> Transaction:
    """Grant an organization credits (USD), and return the completed gift; the organization sees `description`.

    Raises InvalidRequest for an amount that is not positive or is finer than 1e-12 USD, NotFound when the organization
    is deleted.
    """
    lock_row(organization, NO_ORGANIZATION)
    try:
        gift = ledger.grant(organization.pk, amount, description)
    except ValueError as error:
        raise InvalidRequest(str(error), param="amount") from error
    details = {"amount": amount, "description": description}
    audit.record("credit_gift.create", organization_id=organization.pk, resource=gift, details=details)
    return gift


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
