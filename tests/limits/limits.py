"""Limits and requests that count against them, made for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from apps.billing import balances
from apps.billing.balances import Balance
from apps.billing.limit_holds import USD, LimitHold, LimitHolds, MeasuredUse
from apps.billing.reservations import ReservationRequest, ReservationResult, TokenRequest, reserve
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from apps.keys.models import ApiKey
from apps.limits.applied import (
    AppliedLimit,
    AppliedLimits,
    CountedUse,
    LimitRule,
    RecordedCounter,
    apply_rule,
    read_counted,
)
from apps.limits.key_limits import find_key_limits
from apps.limits.models import LimitCounter
from apps.limits.windows import WindowKind

ORGANIZATION = new_id()
NOW = 1_900_000_000.0


def rule(counts: str = "requests", amount: str = "10", **fields: Any) -> LimitRule:
    """Return a limit of the organization a day."""
    known = {
        "id": new_id(),
        "organization_id": ORGANIZATION,
        "name": "ours",
        "scope": "organization",
        "end_user": "",
        "model": "",
        "provider": "",
        "window": WindowKind.DAY,
        "time_zone": "UTC",
        "rolling": 1,
        "first_day": 0,
        "refuses": True,
        **fields,
    }
    return LimitRule(counts=counts, amount=Decimal(amount), **known)


def applied(counts: str = "requests", amount: str = "10", **fields: Any) -> AppliedLimit:
    """Return a limit as it holds for requests of NOW, with a copy of its counter at 0."""
    one = apply_rule(rule(counts, amount, **fields), "", NOW)
    balances.publish_or_raise(
        [Balance("limit", bucket.counter_id, Decimal(0), 0, 0, ORGANIZATION) for bucket in one.buckets]
    )
    return one


def holds_of_key(key: UUID, organization: UUID, nanos: int | None) -> LimitHolds | None:
    """Return the holds of a key's own limit, in 1e-9 USD; None without one."""
    if nanos is None:
        return None
    return LimitHolds.prepare([LimitHold(balances.key("key", key, organization), nanos, USD)])


def of_key(nanos: int, used: int = 0, used_before: int = 0) -> AppliedLimit:
    """Return the own limit of another key, with a copy of its usage; amounts in 1e-9 USD."""
    key = ApiKey(usage_limit=Decimal(nanos).scaleb(-9), usage=Decimal(used).scaleb(-9), description="ours")
    balances.publish_or_raise([Balance("key", key.id, key.usage, 1, 0, ORGANIZATION)])
    [found] = find_key_limits(key, ORGANIZATION, datetime.fromtimestamp(NOW, UTC))
    return replace(found.applied, used_before=used_before)


def ask(
    limits: Sequence[AppliedLimit], *, nanos: int = 0, prompt: int = 0, tokens: TokenRequest | None = None, **more: Any
) -> ReservationResult:
    """Ask for a reservation under limits."""
    request = ReservationRequest(
        id=more.pop("id", None) or new_id(),
        worker="worker-1",
        organization_id=ORGANIZATION,
        api_key_id=next((one.rule.id for one in limits if one.rule.field), None) or new_id(),
        amount_nanos=nanos,
        from_credits=more.pop("from_credits", False),
        catalog_token=generation.read_generation_token(generation.CATALOG),
        organization_token=generation.read_generation_token(generation.organization_scope(ORGANIZATION)),
        payload=more.pop("payload", '{"n":1}'),
        limits=LimitHolds.prepare(one.hold for one in limits) if limits else None,
        tokens=replace(tokens or TokenRequest(), prompt=prompt),
        **more,
    )
    return reserve(request)


def count(limits: Sequence[AppliedLimit], **answer: Any) -> CountedUse:
    """Return what a request adds to the counters of limits, as settlement reads it from the record."""
    return read_counted(recorded(limits, **answer))


def recorded(limits: Sequence[AppliedLimit], **answer: Any) -> msgspec.Raw:
    """Return what a request adds to the counters of limits, as its record has it."""
    record = AppliedLimits.prepare(limits, NOW).count(**answer)[0]
    assert record is not None
    return record


def amounts_of(counted: CountedUse) -> list[tuple[RecordedCounter, Decimal]]:
    """Return the counters that a request adds to, with the amounts of their charges."""
    by_id = {UUID(identifier): Decimal(amount) for identifier, amount in msgspec.json.decode(counted.text)}
    return [(one, by_id[one.counter_id]) for one in counted.counters.counters if one.counter_id in by_id]


def use(limits: Sequence[AppliedLimit], **answer: Any) -> MeasuredUse:
    """Return what a request adds to the limits that it is held on."""
    return AppliedLimits.prepare(limits, NOW).count(**answer)[1]


def held(one: AppliedLimit) -> int:
    """Return the amount that requests in progress hold of a limit."""
    return int(client().hget(one.counter, "held") or 0)


def used(counter_id: UUID) -> Decimal | None:
    """Return the amount of a counter in the database; None without a row."""
    row = LimitCounter.objects.filter(pk=counter_id).first()
    return None if row is None else row.used
