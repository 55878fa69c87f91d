"""Checks of read replicas: does each answer, is it a replica, and how far behind is it?

A fault of a replica is a warning, not an error: requests then read from the primary.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from apps.kernel.postgres.database import DatabaseTimeouts, apply_timeouts
from apps.kernel.postgres.replica import PRIMARY, Lag, Reason, find_reason, measure_lag
from gateway_project.diagnosis.database import LIMIT_FIX, NO_LIMIT, refuses_statement_limit
from gateway_project.diagnosis.finding import Finding

# Seconds for all questions to one.
_TIMEOUT = 5.0
_INSTEAD = "pages that may be read from it are read from the primary"
_FIXES = {
    Reason.AWAY: "bring it back, or take it out of DATABASE_REPLICA_URL",
    Reason.BEHIND: "look at pg_stat_replication on the primary; raise DATABASE_REPLICA_MAX_LAG where that is usual",
    Reason.PROMOTED: "name a replica in DATABASE_REPLICA_URL, and see that DATABASE_URL leads to the right primary",
}
_FAULTS = {
    Reason.AWAY: "does not answer",
    Reason.BEHIND: "is more than {lag} s behind the primary",
    Reason.PROMOTED: "is no replica: it takes writes of its own",
}


def find_replicas() -> Iterator[Finding]:
    """Yield a finding for each replica; nothing where none is named."""
    for number, alias in enumerate(settings.REPLICA_ALIASES, start=1):
        subject, most = f"replica {number}", settings.DATABASE_REPLICA_MAX_LAG
        lag = ""
        try:
            with apply_timeouts(DatabaseTimeouts(_TIMEOUT, _TIMEOUT)):
                reason = find_reason(alias, PRIMARY, most)
                if reason is None and refuses_statement_limit(alias):
                    yield Finding.warning(subject, f"{NO_LIMIT}; {_INSTEAD}", LIMIT_FIX)
                    continue
                if reason in (None, Reason.BEHIND):
                    lag = _describe(measure_lag(alias, PRIMARY))
        except (DatabaseError, InterfaceError):
            reason = Reason.AWAY
        if reason is None:
            yield Finding.ok(subject, f"answers, and is at most {most} s behind the primary{lag}")
        else:
            yield Finding.warning(subject, f"{_FAULTS[reason].format(lag=most)}{lag}; {_INSTEAD}", _FIXES[reason])


def _describe(lag: Lag) -> str:
    """Return how far a replica is behind; the age of its last replay means nothing once it has everything."""
    if not lag.bytes_left:
        return " (it has all that was written)"
    age = "" if lag.seconds is None else f"{lag.seconds:,.1f} s, "
    return f" ({age}{lag.bytes_left:,} bytes)"
