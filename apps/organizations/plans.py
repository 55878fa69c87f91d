"""Plan limits: what each plan allows, as one table. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_MEBIBYTE, _GIBIBYTE = 1024**2, 1024**3


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
    # Batches that may be in progress at a time, their lines together, and bytes of stored files.
    batches: int
    batch_lines: int
    file_bytes: int
    audit_logs: bool = False


# Source: the specification, section 8, and its decided rate limits.

PLANS: dict[str, PlanLimits] = {
    "free": PlanLimits(
        *(5, 10, 60, 20, 3, 365),
        guardrails=False,
        provider_keys=False,
        cache_bytes=16 * _MEBIBYTE,
        batches=20,
        batch_lines=100_000,
        file_bytes=5 * _GIBIBYTE,
    ),
    "pro": PlanLimits(
        *(20, 10, 600, 200, 90, 365),
        guardrails=False,
        provider_keys=True,
        cache_bytes=64 * _MEBIBYTE,
        batches=100,
        batch_lines=500_000,
        file_bytes=50 * _GIBIBYTE,
    ),
    "enterprise": PlanLimits(
        *(None, None, 6_000, 2_000, 365, 365),
        guardrails=True,
        provider_keys=True,
        cache_bytes=256 * _MEBIBYTE,
        batches=500,
        batch_lines=2_500_000,
        file_bytes=500 * _GIBIBYTE,
        audit_logs=True,
    ),
}


def limits_of(plan: str) -> PlanLimits:
    """Return the limits of a plan by its name on the wire."""
    return PLANS[plan]


def rate_of(plan: str, *, own: int | None, stated: int | None) -> int | None:
    """Return an organization's requests a minute: its own, else the operator's of its plan, else the plan's; 0 stands
    for no limit, which is None."""
    found = own if own is not None else stated
    return limits_of(plan).requests_per_minute if found is None else found or None
