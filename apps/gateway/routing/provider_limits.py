"""Limits in routing: which candidates those of providers leave out, which reroute, and what the explanation says."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from django.db import DatabaseError
from msgspec.structs import replace

from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import Candidates
from apps.gateway.routing.ranking import Ranking
from apps.kernel.postgres import database
from apps.limits.applied import AppliedLimit, LimitRule, PolicyLimits, find_applying
from apps.limits.state import find_used_up


def is_limited(limited: Sequence[LimitRule], candidate: Candidate) -> bool:
    """Return whether one of these limits leaves a candidate out."""
    return any(rule.covers(candidate.model_id, candidate.provider_id) for rule in limited)


def explain_limited(ranking: Ranking, resolved: Candidates, limited: Sequence[LimitRule]) -> Ranking:
    """Return the ranking, which says which of the resolved candidates' providers are left out for which limit."""
    lines = {
        (one.provider_id, rule.name): {"providerId": one.provider_id, "limit": rule.name}
        for one in resolved.eligible
        for rule in limited
        if rule.covers(one.model_id, one.provider_id)
    }
    return replace(ranking, explanation={**ranking.explanation, "limitedProviders": list(lines.values())})


def find_limited_providers(limits: PolicyLimits | None, resolved: Candidates) -> list[LimitRule]:
    """Return the limits of providers of which nothing is left now, as `_find_used_up` does."""
    return _find_used_up(limits, resolved, lambda one: one.is_optional)


def find_rerouting_limits(limits: PolicyLimits | None, resolved: Candidates) -> list[LimitRule]:
    """Return the limits of which nothing is left now, so that they reroute, as `_find_used_up` does."""
    return _find_used_up(limits, resolved, lambda one: bool(one.rule.reroutes_to) and not one.is_open)


def _find_used_up(
    limits: PolicyLimits | None, resolved: Candidates, is_wanted: Callable[[AppliedLimit], bool]
) -> list[LimitRule]:
    """Return some limits of which nothing is left now, apart from holds; those of end users are left out.

    Asks the database; none is known while it is away.
    """
    if limits is None:
        return []
    answerers = [(one.model_id, one.provider_id) for one in resolved.eligible]
    wanted = [one for one in find_applying(limits.rules, answerers, None, time.time()) if is_wanted(one)]
    if not wanted:
        return []
    try:
        return [one.rule for one in database.read(partial(find_used_up, wanted), brief=True)]
    except DatabaseError:
        return []
