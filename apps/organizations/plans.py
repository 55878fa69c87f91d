"""Plan limits: what each plan allows, as one table. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits of a plan; None is unlimited. `log_days` and `activity_days` are days of retention."""

    api_keys_per_project: int | None
    projects: int | None
    requests_per_minute: int
    # Requests that are answered at a time.
    concurrency: int
    log_days: int
    activity_days: int
    guardrails: bool
    provider_keys: bool
    # Bytes that it may keep in the cache: answers, vectors, thinking, logs of streams.
    cache_bytes: int
    audit_logs: bool = False


# Source: the specification, section 8, and its decided rate limits.
_MIB = 1024 * 1024
PLANS: dict[str, PlanLimits] = {
    "free": PlanLimits(5, 10, 60, 20, 3, 365, guardrails=False, provider_keys=False, cache_bytes=16 * _MIB),
    "pro": PlanLimits(20, 10, 600, 200, 90, 365, guardrails=False, provider_keys=True, cache_bytes=64 * _MIB),
    "enterprise": PlanLimits(
        *(None, None, 6_000, 2_000, 365, 365),
        guardrails=True,
        provider_keys=True,
        cache_bytes=256 * _MIB,
        audit_logs=True,
    ),
}


def limits_of(plan: str) -> PlanLimits:
    """Return the limits of a plan by its name on the wire."""
    return PLANS[plan]
