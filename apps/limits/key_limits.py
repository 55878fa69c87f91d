"""Limits that an API key's columns set: its usage limit, and its limit for an hour, day, week or month (UTC).

Both are limits on the key's usage, and its balance is their counter: the ledger counts each request of the key, so that
no second counter is needed, and a limit that is set later counts earlier usage. Usage only grows, so that a limit for a
period allows the usage at the period's start and its amount. Usage counts when it is settled, within seconds of its
request.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import DecimalField, OuterRef, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from apps.billing import balances
from apps.billing.models import LedgerEntry
from apps.kernel.money import NANO, ZERO, plain
from apps.keys.models import ApiKey
from apps.limits.applied import AppliedLimit, Bucket, LimitRule
from apps.limits.models import Limit
from apps.limits.windows import Window, WindowKind, window_at

# The fields that set them.
USAGE_LIMIT: Final = "usageLimit"
PERIOD_LIMIT: Final = "periodLimit"
# A key's usage at the start of a period never changes; number of such values cached by a process.
_MAX_REMEMBERED = 20_000
_used_before: OrderedDict[tuple[UUID, int], Decimal] = OrderedDict()
_MONEY = DecimalField(max_digits=30, decimal_places=12)


class KeyLimit(NamedTuple):
    """A limit of a key, with its amount and the amount used in its window, in USD."""

    applied: AppliedLimit
    amount: Decimal
    used: Decimal

    @property
    def left(self) -> Decimal:
        """The remaining amount, apart from holds; below 0 where it was lowered."""
        return self.amount - self.used

    @property
    def ends_at(self) -> datetime | None:
        """When it counts from 0 again."""
        ends_at = self.applied.window.ends_at
        return None if ends_at is None else datetime.fromtimestamp(ends_at, UTC)


def find_key_limits(key: ApiKey, organization_id: UUID, now: datetime) -> list[KeyLimit]:
    """Return a key's usage limit, then its limit for the present period; none without either. Raises DatabaseError."""
    found = []
    if key.usage_limit is not None:
        found.append(_limit(key, organization_id, USAGE_LIMIT, WindowKind.LIFETIME, key.usage_limit, now))
    if key.period and key.period_limit is not None:
        found.append(_limit(key, organization_id, PERIOD_LIMIT, WindowKind(key.period), key.period_limit, now))
    return found


def find_tightest(key: ApiKey, organization_id: UUID, now: datetime) -> AppliedLimit | None:
    """Return the limit of a key that its usage reaches first, None without any. Raises DatabaseError.

    It stays the tightest until its window ends: the others of the same counter only move up.
    """
    # The limit of a period is named where both end at the same usage.
    found = [one.applied for one in reversed(find_key_limits(key, organization_id, now))]
    return min(found, key=lambda one: one.hold.ceiling, default=None)


def words_of(applied: AppliedLimit) -> str:
    """Return the limit in words, for messages: `usage limit of 5 USD`, `limit of 5 USD a day`."""
    amount = plain(applied.rule.amount)
    if applied.rule.field == USAGE_LIMIT:
        return f"usage limit of {amount} USD"
    return f"limit of {amount} USD a {applied.rule.window}"


def clear_cache() -> None:
    """Clear the cache."""
    _used_before.clear()


def _limit(
    key: ApiKey, organization_id: UUID, field: str, kind: WindowKind, amount: Decimal, now: datetime
) -> KeyLimit:
    window = window_at(kind, "UTC", now.timestamp())
    before = ZERO if kind is WindowKind.LIFETIME else _find_used_before(key.id, organization_id, window)
    rule = LimitRule(
        id=key.id,
        organization_id=organization_id,
        name=key.description,
        scope=Limit.Scope.KEY.value,
        end_user="",
        model="",
        provider="",
        counts=Limit.Counts.USD.value,
        window=kind,
        time_zone="UTC",
        rolling=1,
        first_day=0,
        amount=amount,
        refuses=True,
        field=field,
    )
    counter = balances.key("key", key.id, organization_id)
    capacity = int(amount * NANO)
    bucket = Bucket(key.id, counter, organization_id, window, None)
    used_before = int((before + amount) * NANO) - capacity
    applied = AppliedLimit(rule, key.id, counter, window, capacity, False, (bucket,), used_before=used_before)
    return KeyLimit(applied, amount, key.usage - before)


def _find_used_before(key_id: UUID, organization_id: UUID, window: Window) -> Decimal:
    """Return a key's usage at the start of a window: its current usage less later ledger entries. One query."""
    known = _used_before.get((key_id, window.starts_at))
    if known is not None:
        return known
    starts_at = datetime.fromtimestamp(window.starts_at, UTC)
    since = (
        LedgerEntry.objects.filter(
            organization_id=organization_id, api_key_id=OuterRef("pk"), created_at__gte=starts_at
        )
        .order_by()
        .values("api_key_id")
        .annotate(total=Sum("usage"))
        .values("total")
    )
    row = ApiKey.objects.filter(pk=key_id).values_list(
        "usage", Coalesce(Subquery(since), Value(Decimal(0)), output_field=_MONEY)
    )
    usage, used_since = row.get()
    found: Decimal = usage - used_since
    _used_before[key_id, window.starts_at] = found
    while len(_used_before) > _MAX_REMEMBERED:
        _used_before.popitem(last=False)
    return found
