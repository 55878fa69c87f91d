"""Read replicas: what may be some seconds old is read from one, and from the primary while none is fit.

A replica is fit while it answers, is in recovery, and is not further behind than DATABASE_REPLICA_MAX_LAG. Whoever
finds one unfit reads from the primary at once, and for some seconds nobody tries it. A read that waits asks by another
connection whether the replica still answers: it may be slow, or stand still. Money, keys, policies and whatever
a writer must see again are never read here. Must never know what is read.
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

from apps.kernel.database import is_in_transaction
from apps.kernel.database_timeouts import DatabaseTimeouts, apply_timeouts
from apps.kernel.zero_series import begin_at_zero

log = structlog.get_logger(__name__)

Found = TypeVar("Found")

PRIMARY = DEFAULT_DB_ALIAS
# Seconds between two looks at a replica that is fit, and for which one that is not is left alone.
CHECK_EVERY, COOLDOWN = 1.0, 5.0
# Seconds that a look may take, and of silence in one read before the primary is asked instead; and of silence, each
# time, after which a read asks whether the replica still answers.
_CHECK_TIMEOUT, _READ_TIMEOUT = 1.0, 10.0
PROBE_EVERY = 1.5
# Seconds until a replica that seems behind is asked once more whether it has what the primary had then.
_SECOND_LOOK = 0.05

READS = Counter("gateway_replica_reads_total", "Reads that a replica may answer, by who did", ["source"])
begin_at_zero(READS, ("primary", "replica"))
UNFIT = Counter("gateway_replica_unfit_total", "Times that a replica was found unfit, by why", ["replica", "reason"])


class Reason(StrEnum):
    """Why a replica is not read from."""

    AWAY = "away"
    BEHIND = "behind"
    CONFLICT = "conflict"
    PROMOTED = "promoted"


# What the server says (SQLSTATE) when a read was in the way of what was to be replayed.
_CONFLICTS = frozenset({"40001", "40P01"})
# No such table or column: its schema is that of a moment ago.
_OLDER_SCHEMA = frozenset({"42P01", "42703"})
# Of the connection, no privilege to connect, no such database, no resources, ended by an operator, its disk.
_AWAY_CLASSES = ("08", "28", "3D", "53", "57P", "58")


class Replica:
    """What this process knows of one replica."""

    def __init__(self, alias: str, primary: str = PRIMARY, *, max_lag: float) -> None:
        self.alias, self._primary, self._max_lag = alias, primary, max_lag
        # Nobody has looked yet.
        self.reason: Reason | None = Reason.AWAY
        begin_at_zero(UNFIT, [alias], Reason)
        self._next_check = 0.0
        self._checking = False
        self._probing = False
        # Whether a read that waited found nobody there, since it was last fit.
        self.hangs = False

    def is_fit(self) -> bool:
        """Tell whether it may be read from. Who finds the last look old looks; meanwhile others go to the primary."""
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
        """Take note that a read found it unfit."""
        self._record(reason)

    def record_silence(self) -> None:
        """Take note that a read had no answer in time: the next one looks whether the replica is silent or was slow."""
        self._next_check = 0.0

    def probe(self) -> None:
        """Ask whether it answers anybody, for a read that waits: by a connection that is new and of no pool, which slow
        reads may have used up. One asks for all."""
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

        # A greenlet in a web worker. To connect takes two seconds at least before it fails, which is not waited for.
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
    """How long a read waits: as long as a slow one may take, and no longer once the replica answers nobody."""

    __slots__ = ("_probe_at", "_replica")

    def __init__(self, replica: Replica) -> None:
        super().__init__(_CHECK_TIMEOUT, _READ_TIMEOUT)
        self._replica, self._probe_at = replica, _READ_TIMEOUT - PROBE_EVERY

    def is_over(self, seconds: float) -> bool:
        """Take note of silence; once it is long, and each time it is that long again, ask whether anybody is there."""
        if super().is_over(seconds):
            return True
        if self.silence <= self._probe_at:
            self._probe_at = self.silence - PROBE_EVERY
            self._replica.probe()
        return self._replica.hangs


def find_reason(alias: str, primary: str, max_lag: float) -> Reason | None:
    """Ask a replica how it does; return why it is not to be read from, None where nothing is wrong. Raises
    DatabaseError of the replica.

    The last transaction that it has replayed tells its age, by its own clock. Where that is old because nothing was
    written since, it has all that the primary has.
    """
    recovers, age = _one_row(alias, _STATE)
    if not recovers:
        return Reason.PROMOTED
    if age is not None and age <= max_lag:
        return None
    try:
        (written,) = _one_row(primary, "SELECT pg_current_wal_lsn()::text")
    except (DatabaseError, InterfaceError):
        # The primary is away: whoever asks it will say so.
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
    """How far a replica is behind: bytes of the log that it has not replayed, and the age of what it replayed last."""

    bytes_left: int
    seconds: float | None


def measure_lag(alias: str, primary: str) -> Lag:
    """Ask a replica how far it is behind what its primary has written by now. Raises DatabaseError of either."""
    (written,) = _one_row(primary, "SELECT pg_current_wal_lsn()::text")
    left, age = _one_row(alias, _LAG, written)
    return Lag(max(0, left), age)


_LAG = """
    SELECT pg_wal_lsn_diff(%s::pg_lsn, pg_last_wal_replay_lsn())::bigint,
           extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float
"""


def read(work: Callable[[str], Found]) -> Found:
    """Return what `work` reads by the name of a connection: a replica's while one is fit, else the primary's.

    It may be done twice, for a replica that fails in the middle of it. Inside a transaction the primary is read from,
    since what was written there must be seen. The replica's connection is given back at once.
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
    """Return what an error says of the replica; None where it is the statement's, and the primary would say the same.

    A statement that the server ended because it took too long is not asked of the primary.
    """
    state = getattr(error.__cause__, "sqlstate", None)
    if state in _CONFLICTS:
        return Reason.CONFLICT
    if state in _OLDER_SCHEMA:
        return Reason.BEHIND
    # What the server did not say itself, libpq and psycopg say of a connection that is gone or silent.
    return Reason.AWAY if state is None or str(state).startswith(_AWAY_CLASSES) else None


def _in_turn(replicas: Sequence[Replica]) -> list[Replica]:
    """Return all of them, another one first each time."""
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
