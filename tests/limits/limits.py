"""Limits and requests that count against them, made for tests."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from apps.billing import balances
from apps.billing.balances import Balance
from apps.billing.limit_holds import LimitHolds, MeasuredUse
from apps.billing.reservations import ReservationRequest, ReservationResult, TokenRequest, reserve
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from apps.limits.applied import AppliedLimit, AppliedLimits, CountedAmount, LimitRule, apply_rule, read_counted
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


def ask(
    limits: Sequence[AppliedLimit], *, nanos: int = 0, prompt: int = 0, tokens: TokenRequest | None = None, **more: Any
) -> ReservationResult:
    """Ask for a reservation under limits."""
    request = ReservationRequest(
        id=more.pop("id", None) or new_id(),
        worker="worker-1",
        organization_id=ORGANIZATION,
        api_key_id=new_id(),
        amount_nanos=nanos,
        from_credits=False,
        key_limit_nanos=None,
        catalog_token=generation.read_generation_token(generation.CATALOG),
        organization_token=generation.read_generation_token(generation.organization_scope(ORGANIZATION)),
        payload=more.pop("payload", '{"n":1}'),
        limits=LimitHolds.prepare(one.hold for one in limits) if limits else None,
        tokens=replace(tokens or TokenRequest(), prompt=prompt),
        **more,
    )
    return reserve(request)


def count(limits: Sequence[AppliedLimit], **answer: Any) -> tuple[CountedAmount, ...]:
    """Return what a request adds to the counters of limits, as settlement reads it from the record."""
    record, _ = AppliedLimits.prepare(limits, NOW).count(**answer)
    return () if record is None else read_counted(msgspec.json.decode(record))


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
