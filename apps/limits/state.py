"""The state of limits: used, held and remaining amount in the present window, and when it counts from 0 again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.billing.balance_copies import read_fields
from apps.limits import counters
from apps.limits.applied import AppliedLimit, apply_rule, rule_of, text_of
from apps.limits.models import Limit

log = structlog.get_logger(__name__)


class LimitState(msgspec.Struct, frozen=True):
    """Used, held and remaining amount of a limit, as text: USD, or whole numbers.

    `held` is None while Valkey does not answer; requests in progress are then not part of `left`. `share` and
    `held_share` are percentages of the amount in force, at most 100 together.
    """

    amount: str
    used: str
    held: str | None
    left: str
    share: int
    held_share: int
    starts_at: datetime | None
    resets_at: datetime | None


def states_of(limits: Iterable[Limit]) -> dict[Limit, LimitState | None]:
    """Return the state of each limit; None for a limit of each end user, which has many. Raises DatabaseError."""
    now = time.time()
    applied: dict[Limit, AppliedLimit | None] = {}
    for limit in limits:
        is_of_each = limit.scope == Limit.Scope.END_USER and not limit.end_user
        applied[limit] = None if is_of_each else apply_rule(rule_of(limit), limit.end_user, now)
    counted = [one for one in applied.values() if one is not None]
    used, held = counters.usage_of(counted), held_of(counted)
    return {
        limit: None if one is None else state_of(one, used[one.counter_id], held.get(one.counter_id))
        for limit, one in applied.items()
    }


def find_used_up(applied: Iterable[AppliedLimit]) -> list[AppliedLimit]:
    """Return the limits of which nothing is left in the present window, apart from holds. Raises DatabaseError."""
    every = list(applied)
    used = counters.usage_of(every)
    return [one for one in every if used[one.counter_id] >= one.capacity]


def held_of(applied: Collection[AppliedLimit]) -> dict[UUID, int]:
    """Return the amount that requests in progress hold of each limit, by the id of its first counter; nothing while
    Valkey does not answer."""
    names = [bucket.counter for one in applied for bucket in one.buckets]
    try:
        known = {name: int(held or 0) for name, (held,) in zip(names, read_fields(names, "held"), strict=True)}
        return {one.counter_id: sum(known[each.counter] for each in one.buckets) for one in applied}
    except RedisError as error:
        log.warning("limits.holds_unknown", error=type(error).__name__)
        return {}


def state_of(applied: AppliedLimit, used: int, held: int | None) -> LimitState:
    """Return the state of a limit with a used and a held amount, in units."""
    is_money, window, capacity = applied.rule.is_money, applied.window, applied.capacity
    left = max(capacity - used - (held or 0), 0)
    share = 100 if used >= capacity else used * 100 // capacity
    return LimitState(
        amount=text_of(capacity, is_money=is_money),
        used=text_of(used, is_money=is_money),
        held=None if held is None else text_of(held, is_money=is_money),
        left=text_of(left, is_money=is_money),
        share=share,
        held_share=min((held or 0) * 100 // max(capacity, 1), 100 - share),
        starts_at=None if window.ends_at is None else datetime.fromtimestamp(applied.buckets[-1].window.starts_at, UTC),
        resets_at=None if window.ends_at is None else datetime.fromtimestamp(window.ends_at, UTC),
    )
