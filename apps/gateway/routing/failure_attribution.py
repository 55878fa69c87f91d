"""Failure attribution: decide which failures count against a provider, and which may be the request's own fault.

A request that another provider answered was valid, so the provider that failed it before is to blame; a broken
connection is always the provider's failure. Failures without such proof count when more than one tenant has them, and
only a few a minute of each, so a single tenant's bad requests do not take a provider away from the others; the rest
count in the public uptime, and open no circuit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from apps.gateway.access.credentials import API_KEYS
from apps.gateway.failures import UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS

# Unproven failures of one organization at one mapping that count, a minute and a worker; and only beside another's.
UNPROVEN_A_MINUTE = 3
_RECENT, _MAX_REMEMBERED = 60.0, 10_000
# Statuses that are about the credential, and say nothing of the provider when that is a tenant's own.
_ABOUT_CREDENTIALS = frozenset({401, 402, 403, 404, 429})
# Mapping -> organization -> since when (monotonic), and how many.
_counted: dict[str, dict[UUID, tuple[float, int]]] = {}


@dataclass(frozen=True, slots=True)
class FailureEvidence:
    """A failure that may count against a mapping; `certain` when no request could have caused it."""

    mapping: str
    certain: bool


def evidence_of(candidate: Candidate, failure: UpstreamFailure) -> FailureEvidence | None:
    """Return the evidence that a failure gives against a provider; None when it gives none."""
    if not failure.retryable:
        return None
    if candidate.credential.mode == API_KEYS and failure.status in _ABOUT_CREDENTIALS:
        return None
    return FailureEvidence(candidate.mapping, certain=failure.error_type == "network")


def record_failures(evidence: Iterable[FailureEvidence], *, answered: bool, organization_id: UUID) -> None:
    """Count the failures of a request, `answered` in the end or not, in the circuit breakers of those to blame."""
    for one in evidence:
        if answered or one.certain or _is_allowed(one.mapping, organization_id):
            CIRCUIT_BREAKERS.record_failure(one.mapping)
        else:
            CIRCUIT_BREAKERS.record_unproven_failure(one.mapping)


def _is_allowed(mapping: str, organization_id: UUID) -> bool:
    """Note an unproven failure; return whether it counts: others had some too lately, and this one not too many."""
    now = time.monotonic()
    if mapping not in _counted and len(_counted) >= _MAX_REMEMBERED:
        _counted.clear()
    recent = {one: seen for one, seen in _counted.get(mapping, {}).items() if now - seen[0] < _RECENT}
    since, count = recent.get(organization_id, (now, 0))
    recent[organization_id] = (since, count + 1)
    _counted[mapping] = recent
    return len(recent) > 1 and count < UNPROVEN_A_MINUTE
