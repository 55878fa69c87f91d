"""Read replicas: reads that may be some seconds old use one, and the primary while none is fit.

A replica is fit while it answers, is in recovery, and lags no more than DATABASE_REPLICA_MAX_LAG. A read that finds one
unfit uses the primary at once, and the replica is avoided for some seconds. A waiting read checks by a second
connection whether the replica still answers: it may be slow, or hang. Money, keys, policies and data that a writer must
see again are never read here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import structlog
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from prometheus_client import Counter

from apps.kernel.postgres.database import DatabaseTimeouts, apply_timeouts, is_in_transaction
from apps.kernel.zero_series import begin_at_zero

log = structlog.get_logger(__name__)

Found = TypeVar("Found")

PRIMARY = DEFAULT_DB_ALIAS
# Seconds between checks of a fit replica, and for which an unfit one is avoided.
CHECK_EVERY, COOLDOWN = 1.0, 5.0
# Timeouts in seconds: of a check, and of silence in one read before the primary is used; and the silence after which,
# each time, a read checks whether the replica still answers.
_CHECK_TIMEOUT, _READ_TIMEOUT = 1.0, 10.0
PROBE_EVERY = 1.5
# Seconds until a replica that seems behind is checked again for the primary's position at that time.
_SECOND_LOOK = 0.05

READS = Counter("gateway_replica_reads_total", "Reads that a replica may answer, by who did", ["source"])
begin_at_zero(READS, ("primary", "replica"))
UNFIT = Counter("gateway_replica_unfit_total", "Times that a replica was found unfit, by why", ["replica", "reason"])


class Reason(StrEnum):
    """Why a replica is not used."""

    AWAY = "away"
    BEHIND = "behind"
    CONFLICT = "conflict"
    PROMOTED = "promoted"


# SQLSTATE codes of reads that conflicted with replay.
_CONFLICTS = frozenset({"40001", "40P01"})
# Missing table or column: its schema is older.
_OLDER_SCHEMA = frozenset({"42P01", "42703"})
# SQLSTATE classes: connection, no privilege to connect, no such database, no resources, ended by an operator, disk.
_AWAY_CLASSES = ("08", "28", "3D", "53", "57P", "58")


class Replica:
    """This process's knowledge of one replica."""

    def __init__(self, alias: str, primary: str = PRIMARY, *, max_lag: float) -> None:
        self.alias, self._primary, self._max_lag = alias, primary, max_lag
        # Not checked yet.
        self.reason: Reason | None = Reason.AWAY
        begin_at_zero(UNFIT, [alias], Reason)
        self._next_check = 0.0
        self._checking = False
        self._probing = False
        # Whether a waiting read found it hanging, since it was last fit.
        self.hangs = False

    def is_fit(self) -> bool:
        """Return whether it may be used. The caller that finds the last check old repeats it; others use the
        primary."""
        if self._checking:
            return False
        if time.monotonic() >= self._next_check:
            self._checking = True
            try:
                self._record(self._check())
            finally:
                self._checking = False
        return self.reason is None

    def record_failure(self, reason: Reason) -> None:
        """Record that a read found it unfit."""
        self._record(reason)

    def record_silence(self) -> None:
        """Record that a read had no answer in time: the next read checks whether the replica hangs or was slow."""
        self._next_check = 0.0

    def probe(self) -> None:
        """Check for a waiting read whether it answers at all: by a new, unpooled connection, because slow reads may
        have used up the pool. One check serves all."""
        if self.hangs or self._probing:
            return
        self._probing = True
        try:
            self.hangs = not self._answers()
        finally:
            self._probing = False
        if self.hangs:
            self._record(Reason.AWAY)

    def _answers(self) -> bool:
        answered: list[bool] = []

        def ask() -> None:
            asking = connections[self.alias].copy()
            asking.settings_dict["OPTIONS"].pop("pool", None)
            try:
                with apply_timeouts(DatabaseTimeouts(_CHECK_TIMEOUT, _CHECK_TIMEOUT)), asking.cursor() as cursor:
                    cursor.execute("SELECT 1")
                answered.append(True)
            except (DatabaseError, InterfaceError):
                pass
            finally:
                with suppress(DatabaseError, InterfaceError):
                    asking.close()

        # A greenlet in a web worker. A failing connection attempt takes at least two seconds, which is not awaited.
        asker = threading.Thread(target=ask, name="replica-probe", daemon=True)
        asker.start()
        asker.join(_CHECK_TIMEOUT)
        return bool(answered)

    def _record(self, reason: Reason | None) -> None:
        self._next_check = time.monotonic() + (CHECK_EVERY if reason is None else COOLDOWN)
        if reason is not None:
            UNFIT.labels(self.alias, reason).inc()
            if self.reason is None:
                log.warning("replica.unfit", replica=self.alias, reason=reason)
        else:
            self.hangs = False
            if self.reason is not None:
                log.info("replica.fit", replica=self.alias)
        self.reason = reason

    def _check(self) -> Reason | None:
        try:
            with apply_timeouts(DatabaseTimeouts(_CHECK_TIMEOUT, _CHECK_TIMEOUT)):
                return find_reason(self.alias, self._primary, self._max_lag)
        except (DatabaseError, InterfaceError) as error:
            return reason_of(error) or Reason.AWAY
        finally:
            _close(self.alias)


class _ReadTimeouts(DatabaseTimeouts):
    """Timeouts of a read: as long as a slow one may take, and no longer once the replica hangs."""

    __slots__ = ("_probe_at", "_replica")

    def __init__(self, replica: Replica) -> None:
        super().__init__(_CHECK_TIMEOUT, _READ_TIMEOUT)
        self._replica, self._probe_at = replica, _READ_TIMEOUT - PROBE_EVERY

    def is_over(self, seconds: float) -> bool:
        """Record silence; when it is long, and each time it is that long again, check whether the replica answers."""
        if super().is_over(seconds):
            return True
        if self.silence <= self._probe_at:
            self._probe_at = self.silence - PROBE_EVERY
            self._replica.probe()
        return self._replica.hangs


def find_reason(alias: str, primary: str, max_lag: float) -> Reason | None:
    """Check a replica; return why it is unfit, None if it is fit. Raises DatabaseError of the replica.

    The last replayed transaction gives its age, by the replica's own clock. If that is old because nothing was written
    since, it has everything that the primary has.
    """
    recovers, age = _one_row(alias, _STATE)
    if not recovers:
        return Reason.PROMOTED
    if age is not None and age <= max_lag:
        return None
    try:
        (written,) = _one_row(primary, "SELECT pg_current_wal_lsn()::text")
    except (DatabaseError, InterfaceError):
        # The primary is down: its callers will notice.
        return Reason.BEHIND
    for _ in range(2):
        (has_all,) = _one_row(alias, "SELECT coalesce(pg_last_wal_replay_lsn() >= %s::pg_lsn, false)", written)
        if has_all:
            return None
        time.sleep(_SECOND_LOOK)
    return Reason.BEHIND


_STATE = """
    SELECT pg_is_in_recovery(), extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float
"""


class Lag(NamedTuple):
    """How far a replica is behind: unreplayed bytes of the log, and the age of the last replayed transaction."""

    bytes_left: int
    seconds: float | None


def measure_lag(alias: str, primary: str) -> Lag:
    """Measure how far a replica is behind its primary. Raises DatabaseError of either."""
    (written,) = _one_row(primary, "SELECT pg_current_wal_lsn()::text")
    left, age = _one_row(alias, _LAG, written)
    return Lag(max(0, left), age)


_LAG = """
    SELECT pg_wal_lsn_diff(%s::pg_lsn, pg_last_wal_replay_lsn())::bigint,
           extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float
"""


def read(work: Callable[[str], Found]) -> Found:
    """Return the result of `work` with the alias of a connection: a replica's while one is fit, else the primary's.

    It may run twice if a replica fails. Inside a transaction the primary is used, so that its writes are visible. The
    replica's connection is released at once.
    """
    if not REPLICAS or is_in_transaction():
        return work(PRIMARY)
    return read_from(REPLICAS, work)


def read_from(replicas: Sequence[Replica], work: Callable[[str], Found], primary: str = PRIMARY) -> Found:
    """Read as `read` does, from these replicas."""
    for replica in _in_turn(replicas):
        if not replica.is_fit():
            continue
        timeouts = _ReadTimeouts(replica)
        try:
            with apply_timeouts(timeouts):
                found = work(replica.alias)
        except (DatabaseError, InterfaceError) as error:
            reason = reason_of(error)
            if reason is None:
                raise
            if timeouts.silence <= 0:
                replica.record_silence()
            elif not replica.hangs:
                replica.record_failure(reason)
        else:
            READS.labels("replica").inc()
            return found
        finally:
            _close(replica.alias)
    READS.labels("primary").inc()
    return work(primary)


def reason_of(error: Exception) -> Reason | None:
    """Return the problem of the replica that an error shows; None if the statement is at fault, on the primary as well.

    A statement that hit the server's timeout is not repeated on the primary.
    """
    state = getattr(error.__cause__, "sqlstate", None)
    if state in _CONFLICTS:
        return Reason.CONFLICT
    if state in _OLDER_SCHEMA:
        return Reason.BEHIND
    # Without a SQLSTATE, the error comes from libpq or psycopg: the connection is gone or hangs.
    return Reason.AWAY if state is None or str(state).startswith(_AWAY_CLASSES) else None


def _in_turn(replicas: Sequence[Replica]) -> list[Replica]:
    """Return all of them, starting with another one each time."""
    global _turn  # one number of this process
    _turn = (_turn + 1) % len(replicas)
    return [*replicas[_turn:], *replicas[:_turn]]


def _one_row(alias: str, question: str, *values: Any) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(question, values)
        return cursor.fetchone()


def _close(alias: str) -> None:
    with suppress(DatabaseError, InterfaceError):
        connections[alias].close()


_turn = 0
REPLICAS = [Replica(alias, max_lag=settings.DATABASE_REPLICA_MAX_LAG) for alias in settings.REPLICA_ALIASES]
