"""Checks of PostgreSQL: does it answer, is it durable, a primary, migrated and filled, and does the ledger agree?

Each query has a time limit. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from apps.billing.ledger_audit import find_mismatches
from apps.catalog.models import Model, ModelProvider, Provider
from apps.gateway.models import Reconciliation
from gateway_project.observability.doctor.diagnosis import Diagnosis, doubtful, well, wrong
from gateway_project.observability.doctor.pooler import LIMIT_MEND, NO_LIMIT, refuses_statement_limit

# Milliseconds of a question.
_STATEMENT_LIMIT = 5_000
# Seconds by which clocks may differ: logs order by them; sessions, links and leases end by them.
_CLOCK_DOUBT, _CLOCK_WRONG = 2.0, 30.0
_OLDEST_TESTED = 18
_LATE_RECONCILIATION_HOURS = 26


@contextmanager
def _bounded() -> Iterator[Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {_STATEMENT_LIMIT}")
        yield cursor


def server() -> Iterator[Diagnosis]:
    """Yield whether it answers; then what of it is not as it should be."""
    if not settings.DATABASE_URL:
        yield wrong("database", "none is running on this home", "start the server, or set DATABASE_URL")
        return
    with _bounded() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'),"
            " current_setting('synchronous_commit'), clock_timestamp(), current_setting('full_page_writes')"
        )
        version, recovers, fsync, commit, now, pages = cursor.fetchone()
    yield well("database", f"PostgreSQL {version // 10_000}.{version % 10_000} answers")
    if version // 10_000 < _OLDEST_TESTED:
        yield doubtful("database", f"PostgreSQL {version // 10_000} is older than tested ones ({_OLDEST_TESTED})")
    if recovers:
        yield wrong("database", "it is a replica, which takes no writes", "set DATABASE_URL to the primary")
    for name, value in (("fsync", fsync), ("synchronous_commit", commit), ("full_page_writes", pages)):
        if value == "off":
            yield wrong("database", f"{name} is off: a power cut loses charges", f"set {name} to on")
    if refuses_statement_limit(DEFAULT_DB_ALIAS):
        yield wrong("database", NO_LIMIT, LIMIT_MEND)
    yield clock("clock", "PostgreSQL's", now)


def clock(subject: str, whose: str, theirs: datetime) -> Diagnosis:
    """Return how far another's clock is from this machine's."""
    seconds = abs((datetime.now(UTC) - theirs).total_seconds())
    finding = f"{whose} clock and this machine's are {seconds:.1f} s apart"
    if seconds <= _CLOCK_DOUBT:
        return well(subject, finding)
    return (wrong if seconds > _CLOCK_WRONG else doubtful)(subject, finding, "have both set their clocks by NTP")


def migrations() -> Iterator[Diagnosis]:
    """Yield whether the tables are this version's."""
    executor = MigrationExecutor(connection)
    missing = [one for one, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    unknown = sorted(set(executor.loader.applied_migrations) - set(executor.loader.disk_migrations))
    if missing:
        names = ", ".join(f"{one.app_label}.{one.name}" for one in missing[:5])
        yield wrong("migrations", f"{len(missing)} are not applied ({names})", "gateway manage prepare")
    elif unknown:
        names = ", ".join(".".join(one) for one in unknown[:5])
        yield doubtful("migrations", f"{names} come from a newer version of the product than this one")
    else:
        yield well("migrations", "all are applied")


def catalog() -> Iterator[Diagnosis]:
    """Yield whether there is anything to route to."""
    counts = [table.objects.filter(active=True).count() for table in (Provider, Model, ModelProvider)]
    if all(counts):
        yield well("catalog", "{} providers, {} models, {} offers".format(*counts))
    else:
        yield wrong("catalog", "no model is offered", "gateway manage load_catalog")


def ledger() -> Iterator[Diagnosis]:
    """Yield whether balances are the sums of their entries, and what the nightly reconciliation found."""
    try:
        with _bounded():
            found = len(find_mismatches())
    except DatabaseError:
        yield doubtful("ledger", "too large for a quick look", "gateway manage check_ledger takes the time it needs")
    else:
        if found:
            yield wrong(
                "ledger", f"{found} balances differ from their entries", "gateway manage check_ledger names them"
            )
        else:
            yield well("ledger", "every balance is the sum of its entries")
    last = Reconciliation.objects.filter(finished_at__isnull=False).order_by("-finished_at").first()
    if last is None or last.finished_at is None:
        yield doubtful("reconciliation", "has not run yet; it does every night at 04:10 UTC")
        return
    hours = (timezone.now() - last.finished_at).total_seconds() / 3600
    finding = f"{last.found} differences in {last.compared} requests, {hours:.0f} h ago"
    if last.found or hours > _LATE_RECONCILIATION_HOURS:
        yield doubtful("reconciliation", finding, "look at Differences in the admin, and whether worker and beat run")
    else:
        yield well("reconciliation", finding)
