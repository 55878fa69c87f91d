"""Checks of read replicas: does each answer, is it a replica, and how far behind is it?

A fault of a replica is a warning, not an error: requests then read from the primary.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from apps.kernel.postgres.database_timeouts import DatabaseTimeouts, apply_timeouts
from apps.kernel.postgres.replica import PRIMARY, Lag, Reason, find_reason, measure_lag
from gateway_project.observability.doctor.diagnosis import Diagnosis, doubtful, well
from gateway_project.observability.doctor.pooler import LIMIT_MEND, NO_LIMIT, refuses_statement_limit

# Seconds for all questions to one.
_TIMEOUT = 5.0
_INSTEAD = "pages that may be read from it are read from the primary"
_MENDS = {
    Reason.AWAY: "bring it back, or take it out of DATABASE_REPLICA_URL",
    Reason.BEHIND: "look at pg_stat_replication on the primary; raise DATABASE_REPLICA_MAX_LAG where that is usual",
    Reason.PROMOTED: "name a replica in DATABASE_REPLICA_URL, and see that DATABASE_URL leads to the right primary",
}
_TOLD = {
    Reason.AWAY: "does not answer",
    Reason.BEHIND: "is more than {lag} s behind the primary",
    Reason.PROMOTED: "is no replica: it takes writes of its own",
}


def servers() -> Iterator[Diagnosis]:
    """Yield how each does; nothing where none is named."""
    for number, alias in enumerate(settings.REPLICA_ALIASES, start=1):
        subject, most = f"replica {number}", settings.DATABASE_REPLICA_MAX_LAG
        lag = ""
        try:
            with apply_timeouts(DatabaseTimeouts(_TIMEOUT, _TIMEOUT)):
                reason = find_reason(alias, PRIMARY, most)
                if reason is None and refuses_statement_limit(alias):
                    yield doubtful(subject, f"{NO_LIMIT}; {_INSTEAD}", LIMIT_MEND)
                    continue
                if reason in (None, Reason.BEHIND):
                    lag = _tell(measure_lag(alias, PRIMARY))
        except (DatabaseError, InterfaceError):
            reason = Reason.AWAY
        if reason is None:
            yield well(subject, f"answers, and is at most {most} s behind the primary{lag}")
        else:
            yield doubtful(subject, f"{_TOLD[reason].format(lag=most)}{lag}; {_INSTEAD}", _MENDS[reason])


def _tell(lag: Lag) -> str:
    """Return how far a replica is behind just now; the age of what it replayed last says nothing once it has all."""
    if not lag.bytes_left:
        return " (it has all that was written)"
    age = "" if lag.seconds is None else f"{lag.seconds:,.1f} s, "
    return f" ({age}{lag.bytes_left:,} bytes)"
