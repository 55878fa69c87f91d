"""Limits of plans: those that an organization has by its plan, without a row of its own.

An organization's own limit on all of its requests takes the place of a plan's of the same kind (model, provider, count
and window), unless the plan's is fixed. Each organization has counters of its own, whose ids follow from both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final
from uuid import UUID

from apps.limits.models import Limit, PlanLimit
from apps.organizations.models import Organization

# Limits of one plan. They hold beside those that an organization has when they are made.
MAX_PLAN_LIMITS: Final = 4
# The scopes of limits on all of an organization's requests.
_WIDE: Final = frozenset({Limit.Scope.ORGANIZATION, Limit.Scope.MODEL, Limit.Scope.PROVIDER})
# Model, provider, count, window, and the number of hours or days that count together.
_Kind = tuple[str, str, str, str, int]


def plan_limits_of(organization: Organization, own: Iterable[Limit]) -> list[Limit]:
    """Return the limits that an organization has by its plan, beside `own` ones. Raises DatabaseError."""
    found = PlanLimit.objects.filter(plan=organization.plan).order_by("id")
    return _limits_of(organization, found, _kinds_of(own))


def find_plan_limits(organizations: Iterable[UUID]) -> list[Limit]:
    """Return the limits that each of some organizations has by its plan. Raises DatabaseError."""
    by_plan: defaultdict[str, list[PlanLimit]] = defaultdict(list)
    for one in PlanLimit.objects.order_by("id"):
        by_plan[one.plan].append(one)
    if not by_plan:
        return []
    rows = list(Organization.objects.filter(pk__in=list(organizations), plan__in=by_plan).order_by("id"))
    own: defaultdict[UUID, list[Limit]] = defaultdict(list)
    for limit in Limit.objects.filter(organization__in=rows, scope__in=_WIDE):
        own[limit.organization_id].append(limit)
    return [limit for row in rows for limit in _limits_of(row, by_plan[row.plan], _kinds_of(own[row.pk]))]


def limit_of(plan_limit: PlanLimit, organization: Organization | None) -> Limit:
    """Return a plan's limit as one of an organization, which is never stored; without an organization, to check it."""
    scope = Limit.Scope.ORGANIZATION
    if plan_limit.model or plan_limit.provider:
        scope = Limit.Scope.MODEL if plan_limit.model else Limit.Scope.PROVIDER
    limit = Limit(
        name=plan_limit.name,
        scope=scope,
        model=plan_limit.model,
        provider=plan_limit.provider,
        counts=plan_limit.counts,
        window=plan_limit.window,
        time_zone=plan_limit.time_zone,
        amount=plan_limit.amount,
        action=plan_limit.action,
        reroute_models=plan_limit.reroute_models,
    )
    if organization is not None:
        limit.organization = organization
        limit.id = UUID(bytes=blake2b(organization.pk.bytes, digest_size=16, key=plan_limit.pk.bytes).digest())
    return limit


def _limits_of(organization: Organization, plan_limits: Iterable[PlanLimit], own: set[_Kind]) -> list[Limit]:
    every = ((one, limit_of(one, organization)) for one in plan_limits)
    return [limit for one, limit in every if one.is_fixed or _kind_of(limit) not in own]


def _kinds_of(own: Iterable[Limit]) -> set[_Kind]:
    return {_kind_of(limit) for limit in own if limit.scope in _WIDE}


def _kind_of(limit: Limit) -> _Kind:
    return limit.model, limit.provider, limit.counts, limit.window, limit.rolling or 1
