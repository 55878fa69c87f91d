"""Checks of PostgreSQL: does it answer, is it durable, migrated and filled, do replicas and the ledger agree?

Each query has a time limit. Reads only. A pooler is checked with the settings with which web workers connect. A fault
of a replica is a warning, not an error: requests then read from the primary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor

from apps.billing.reconciliation import find_mismatches
from apps.catalog.models import Model, ModelProvider, Provider
from apps.kernel.postgres.database import DatabaseTimeouts, apply_timeouts, statement_limit_option
from apps.kernel.postgres.replica import PRIMARY, Lag, Reason, find_reason, measure_lag
from gateway_project.diagnosis.check import Diagnosis

# Milliseconds of a question.
_STATEMENT_LIMIT = 5_000
# Seconds by which clocks may differ: logs order by them; sessions, links and leases end by them.
_CLOCK_WARNING, _CLOCK_ERROR = 2.0, 30.0
_OLDEST_TESTED = 18
# Web workers are refused where a pooler before PostgreSQL takes all other connections.
NO_LIMIT = "PgBouncer refuses web workers: they ask for a limit of statements as they connect"
LIMIT_FIX = (
    "set ignore_startup_parameters = options in PgBouncer, or DATABASE_STATEMENT_TIMEOUT=0 here;"
    " and ALTER ROLE ... SET statement_timeout = '30s'"
)


@contextmanager
def _bounded() -> Iterator[Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {_STATEMENT_LIMIT}")
        yield cursor


def find_server() -> Iterator[Diagnosis]:
    """Yield whether it answers; then what of it is not as it should be."""
    if not settings.DATABASE_URL:
        yield Diagnosis.error("database", "none is running on this home", "start the server, or set DATABASE_URL")
        return
    with _bounded() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'),"
            " current_setting('synchronous_commit'), clock_timestamp(), current_setting('full_page_writes')"
        )
        version, recovers, fsync, commit, now, pages = cursor.fetchone()
    yield Diagnosis.ok("database", f"PostgreSQL {version // 10_000}.{version % 10_000} answers")
    if version // 10_000 < _OLDEST_TESTED:
        yield Diagnosis.warning(
            "database", f"PostgreSQL {version // 10_000} is older than tested ones ({_OLDEST_TESTED})"
        )
    if recovers:
        yield Diagnosis.error("database", "it is a replica, which takes no writes", "set DATABASE_URL to the primary")
    for name, value in (("fsync", fsync), ("synchronous_commit", commit), ("full_page_writes", pages)):
        if value == "off":
            yield Diagnosis.error("database", f"{name} is off: a power cut loses charges", f"set {name} to on")
    if refuses_statement_limit(DEFAULT_DB_ALIAS):
        yield Diagnosis.error("database", NO_LIMIT, LIMIT_FIX)
    yield compare_clock("clock", "PostgreSQL's", now)


def compare_clock(subject: str, whose: str, theirs: datetime) -> Diagnosis:
    """Return how far the clock of another machine is from the clock of this one."""
    seconds = abs((datetime.now(UTC) - theirs).total_seconds())
    finding = f"{whose} clock and this machine's are {seconds:.1f} s apart"
    if seconds <= _CLOCK_WARNING:
        return Diagnosis.ok(subject, finding)
    return (Diagnosis.error if seconds > _CLOCK_ERROR else Diagnosis.warning)(
        subject, finding, "have both set their clocks by NTP"
    )


def find_migrations() -> Iterator[Diagnosis]:
    """Yield whether the tables are this version's."""
    executor = MigrationExecutor(connection)
    missing = [one for one, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    unknown = sorted(set(executor.loader.applied_migrations) - set(executor.loader.disk_migrations))
    if missing:
        names = ", ".join(f"{one.app_label}.{one.name}" for one in missing[:5])
        yield Diagnosis.error("migrations", f"{len(missing)} are not applied ({names})", "gateway manage prepare")
    elif unknown:
        names = ", ".join(".".join(one) for one in unknown[:5])
        yield Diagnosis.warning("migrations", f"{names} come from a newer version of the product than this one")
    else:
        yield Diagnosis.ok("migrations", "all are applied")


def find_catalog() -> Iterator[Diagnosis]:
    """Yield whether there is anything to route to."""
    counts = [table.objects.filter(active=True).count() for table in (Provider, Model, ModelProvider)]
    if all(counts):
        yield Diagnosis.ok("catalog", "{} providers, {} models, {} offers".format(*counts))
    else:
        yield Diagnosis.error("catalog", "no model is offered", "gateway manage load_catalog")


def find_ledger() -> Iterator[Diagnosis]:
    """Yield whether balances are the sums of their entries."""
    try:
        with _bounded():
            found = len(find_mismatches())
    except DatabaseError:
        yield Diagnosis.warning(
            "ledger", "too large for a quick look", "gateway manage check_ledger takes the time it needs"
        )
    else:
        if found:
            yield Diagnosis.error(
                "ledger", f"{found} balances differ from their entries", "gateway manage check_ledger names them"
            )
        else:
            yield Diagnosis.ok("ledger", "every balance is the sum of its entries")


def refuses_statement_limit(alias: str) -> bool:
    """Tell whether a server that answers refuses a connection with a web worker's limit of statements."""
    limit = statement_limit_option()
    if not limit:
        return False
    asking = connections[alias].copy()
    asking.settings_dict["OPTIONS"].pop("pool", None)
    asking.settings_dict["OPTIONS"]["options"] = limit
    try:
        asking.ensure_connection()
    except (DatabaseError, InterfaceError) as error:
        return "startup parameter" in str(error)
    else:
        return False
    finally:
        asking.close()


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


def find_replicas() -> Iterator[Diagnosis]:
    """Yield a finding for each replica; nothing where none is named."""
    for number, alias in enumerate(settings.REPLICA_ALIASES, start=1):
        subject, most = f"replica {number}", settings.DATABASE_REPLICA_MAX_LAG
        lag = ""
        try:
            with apply_timeouts(DatabaseTimeouts(_TIMEOUT, _TIMEOUT)):
                reason = find_reason(alias, PRIMARY, most)
                if reason is None and refuses_statement_limit(alias):
                    yield Diagnosis.warning(subject, f"{NO_LIMIT}; {_INSTEAD}", LIMIT_FIX)
                    continue
                if reason in (None, Reason.BEHIND):
                    lag = _describe(measure_lag(alias, PRIMARY))
        except (DatabaseError, InterfaceError):
            reason = Reason.AWAY
        if reason is None:
            yield Diagnosis.ok(subject, f"answers, and is at most {most} s behind the primary{lag}")
        else:
            yield Diagnosis.warning(subject, f"{_FAULTS[reason].format(lag=most)}{lag}; {_INSTEAD}", _FIXES[reason])


def _describe(lag: Lag) -> str:
    """Return how far a replica is behind; the age of its last replay means nothing once it has everything."""
    if not lag.bytes_left:
        return " (it has all that was written)"
    age = "" if lag.seconds is None else f"{lag.seconds:,.1f} s, "
    return f" ({age}{lag.bytes_left:,} bytes)"
