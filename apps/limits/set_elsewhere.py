"""Limits that are set elsewhere: usage limits, period limits and rates of API keys, rates and limits of the plan.

They hold beside the organization's limits, and are listed with them so that people see one list; each says where it is
changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.conf import settings
from django.db.models import Q

from apps.kernel.money import nanos_up, plain
from apps.keys.models import ApiKey
from apps.limits.key_limits import KeyLimit, find_key_limits
from apps.limits.models import Limit, PlanLimit
from apps.limits.plan_limits import plan_limits_of
from apps.limits.state import LimitState, held_of, state_of, states_of
from apps.organizations.models import Organization
from apps.organizations.plans import limits_of, rate_of

# API keys whose limits are listed: those that have used most.
MAX_KEYS: Final = 100


@dataclass(frozen=True, slots=True)
class LimitElsewhere:
    """A limit that is set elsewhere. `kind` is the field that it is set in, `page` the console's page for that, empty
    where an operator sets it; rates have no state, as they are never used up for long."""

    kind: str
    scope: str
    scope_id: str
    name: str
    counts: str
    window: str
    amount: str
    page: str
    state: LimitState | None = None
    # The model or pattern, and the provider, that a plan's limit is on; empty: all.
    model: str = ""
    provider: str = ""


def find_limits_elsewhere(organization: Organization, now: datetime) -> list[LimitElsewhere]:
    """Return the limits of an organization's keys and plan, those of the keys that have used most first. Raises
    DatabaseError."""
    limited = ~Q(usage_limit=None) | ~Q(period_limit=None) | ~Q(requests_per_minute=None)
    keys = ApiKey.objects.filter(limited, project__organization=organization, status=ApiKey.Status.ACTIVE)
    rows = [(key, find_key_limits(key, organization.id, now)) for key in keys.order_by("-usage", "id")[:MAX_KEYS]]
    held = held_of([limits[0].applied for _, limits in rows if limits])
    of_keys = [one for key, limits in rows for one in _of_key(key, limits, held.get(key.id))]
    return [*_of_plan(organization), *_limits_of_plan(organization), *of_keys]


def _of_plan(organization: Organization) -> Iterator[LimitElsewhere]:
    rate = rate_of(
        organization.plan, own=organization.requests_per_minute, stated=settings.RATE_LIMITS[organization.plan]
    )
    owner = Limit.Scope.ORGANIZATION.value, str(organization.id)
    if rate is not None:
        yield LimitElsewhere("requestsPerMinute", *owner, "Plan", "requests", "minute", str(rate), "")
    at_once = limits_of(organization.plan).concurrency
    yield LimitElsewhere("concurrency", *owner, "Plan", "requests", "at once", str(at_once), "")


def _limits_of_plan(organization: Organization) -> Iterator[LimitElsewhere]:
    fixed = set(PlanLimit.objects.filter(plan=organization.plan, is_fixed=True).values_list("name", flat=True))
    found = plan_limits_of(organization, Limit.objects.filter(organization=organization))
    for limit, state in states_of(found).items():
        yield LimitElsewhere(
            "planLimit" if limit.name in fixed else "planDefault",
            limit.scope,
            str(organization.id),
            limit.name,
            limit.counts,
            limit.window,
            plain(limit.amount),
            "",
            state,
            limit.model,
            limit.provider,
        )


def _of_key(key: ApiKey, limits: list[KeyLimit], held: int | None) -> Iterator[LimitElsewhere]:
    owner, page = (Limit.Scope.KEY.value, str(key.id), key.description), f"keys/{key.id}"
    for one in limits:
        rule, state = one.applied.rule, state_of(one.applied, nanos_up(one.used), held)
        yield LimitElsewhere(rule.field, *owner, rule.counts, rule.window, plain(one.amount), page, state)
    if key.requests_per_minute is not None:
        amount = str(key.requests_per_minute)
        yield LimitElsewhere("requestsPerMinute", *owner, "requests", "minute", amount, page)
