"""Database reads on a request's path: timeouts, limited concurrency, and a circuit breaker while PostgreSQL is away.

A server that is silent (stopped, cut off, its disk stuck) answers neither yes nor no; without a limit of ours whoever
asks waits as long as it is silent. Here the failure is found out once, remembered, and tried again in the background:
no request is the one that tries. Knows connections and patience. Must never know what is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from threading import BoundedSemaphore
from typing import Any, TypeVar

import gevent
import psycopg
import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from gevent.monkey import is_module_patched
from psycopg.abc import PQGen
from psycopg.waiting import Ready

from apps.kernel import postgres_hosts
from apps.kernel.database_timeouts import DatabaseTimeouts, apply_timeouts, current_timeouts

log = structlog.get_logger(__name__)

Found = TypeVar("Found")

# Seconds that a read on a request's path waits for a connection that answers, then for all answers together, and
# before both for its turn, while others read.
CONNECTION_TIMEOUT, ANSWER_TIMEOUT, TURN_TIMEOUT = 0.5, 2.0, 5.0
# Connections of the pool that are left to everybody else, and how many of its own reads use at most.
_LEFT_TO_OTHERS, _MOST_READERS = 2, 8
# Seconds for a connection in a process that never had one: it has to be made, on a machine that may be busy starting.
_FIRST_CONNECTION_TIMEOUT = 2.0
# Seconds between tries while the database is away.
_PAUSES = (0.2, 1.0, 2.0, 4.0, 5.0)
# How often psycopg looks up while it waits, and so the grain of all patience. Counted in looks and not by the clock: a
# worker that had no moment to read the answer must not take the database for silent.
_LOOK = 0.1
# Seconds beyond the server's own limit of a statement after which nothing more is expected from it.
_GRACE = 5.0
# What the server says (SQLSTATE) when it ends a connection: an operator did, a crash, not yet started; and the class of
# errors that are the connection's.
_SHUTDOWNS, _CONNECTION_EXCEPTION = frozenset({"57P01", "57P02", "57P03"}), "08"


def statement_limit_option() -> str:
    """Return what a web worker's connections ask of the server as they begin; nothing where there is no limit."""
    limit = settings.DATABASE_STATEMENT_TIMEOUT
    return f"-c statement_timeout={int(limit * 1000)}" if limit else ""


class DatabaseAwayError(OperationalError):
    """The database is known not to answer, or there was no turn to ask it."""


class TimeoutConnection(psycopg.Connection[Any]):
    """A connection that does not wait for a silent server for ever: neither on a request's path nor in any web worker.

    One that was given up in the middle of a statement is closed by the pool when it is given back.
    """

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> TimeoutConnection:
        """Connect. In a web worker the server ends statements that take longer than DATABASE_STATEMENT_TIMEOUT."""
        if is_module_patched("socket") and (limit := statement_limit_option()):
            kwargs["options"] = f"{kwargs.get('options') or ''} {limit}".strip()
        made = super().connect(conninfo, **postgres_hosts.in_order(kwargs))
        postgres_hosts.note(kwargs, made.info.host, made.info.port)
        return made

    def wait(self, gen: PQGen[Found], interval: float = _LOOK, timeout: float | None = None) -> Found:
        """Wait for an answer. Raises psycopg.OperationalError when patience ends first."""
        limit = current_timeouts()
        if limit is None:
            if not is_module_patched("socket") or not settings.DATABASE_STATEMENT_TIMEOUT:
                return super().wait(gen, interval, timeout)
            limit = DatabaseTimeouts(0.0, settings.DATABASE_STATEMENT_TIMEOUT + _GRACE)
        return super().wait(_until_silent(gen, limit), _LOOK, timeout)

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        """Execute. Nothing (`""`) is what the pool asks to learn whether the server is there: now or never."""
        if query == "":
            limit = current_timeouts()
            with apply_timeouts(DatabaseTimeouts(0.0, (limit or _CHECK).connection)):
                return super().execute(query, *args, **kwargs)
        return super().execute(query, *args, **kwargs)


_CHECK = DatabaseTimeouts(2.0, 2.0)


def _until_silent(gen: PQGen[Found], limit: DatabaseTimeouts) -> Generator[Any, Any, Found]:
    """Yield what `gen` waits for, and pass on what came; end it when nothing has come for too long."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready == Ready.NONE and limit.is_over(_LOOK):
                raise psycopg.OperationalError("the database did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as end:
        found: Found = end.value
        return found


class DatabaseCircuitBreaker:
    """Whether the database is known to be away, and who tries it meanwhile: one greenlet, later each time."""

    def __init__(self) -> None:
        self._away = False
        # Whether the database has ever been reached from here.
        self.reached = False
        self._tries = 0
        self._next_try = 0.0

    @property
    def open(self) -> bool:
        """Whether asking is pointless just now."""
        if self._away and not is_module_patched("socket"):
            # Nobody tries in the background here: now and then whoever asks does.
            return time.monotonic() < self._next_try
        return self._away

    def record_failure(self, error: Exception) -> None:
        """Take note that no connection was to be had."""
        in_background = is_module_patched("socket")
        if self._away and in_background:
            # Somebody is at it.
            return
        self._put_off()
        if not self._away:
            self._away = True
            log.error("database.away", error=type(error).__name__)
            if in_background:
                gevent.spawn(self._keep_trying)

    def record_success(self) -> None:
        """Take note that there is a connection that answers."""
        if self._away:
            log.warning("database.back", tries=self._tries)
        self._away, self._tries, self.reached = False, 0, True

    def _keep_trying(self) -> None:
        while self._away:
            gevent.sleep(max(0.0, self._next_try - time.monotonic()))
            try:
                with apply_timeouts(DatabaseTimeouts(ANSWER_TIMEOUT, ANSWER_TIMEOUT)):
                    connection.ensure_connection()
                self.record_success()
            except Exception:  # noqa: BLE001 - whatever it is, it is tried again
                self._put_off()
            finally:
                with suppress(Exception):
                    connection.close()

    def _put_off(self) -> None:
        pause = _PAUSES[min(self._tries, len(_PAUSES) - 1)]
        self._tries += 1
        self._next_try = time.monotonic() + pause


CIRCUIT_BREAKER = DatabaseCircuitBreaker()
_size = settings.DATABASE_POOL_SIZE or _MOST_READERS
_turns = BoundedSemaphore(max(1, min(_MOST_READERS, _size - _LEFT_TO_OTHERS)))


def is_away() -> bool:
    """Tell whether the database is known not to answer: then nobody need wait to find out."""
    return CIRCUIT_BREAKER.open


def read(work: Callable[[], Found], *, brief: bool = False) -> Found:
    """Return what `work` reads from the database for a request, and give the connection back.

    Waits its turn, for a connection and for answers, each within bounds. A connection that ends in the middle of it
    (the server died, or an operator ended it) is replaced, and `work` done once more. `brief` work is one look-up by an
    index, which needs no limit on the server's side and is spared the three round trips of setting one. Raises
    DatabaseError, and DatabaseAwayError at once while the database is known to be away.
    """
    return _ask(work, brief=brief, repeats=1)


def write(work: Callable[[], Found]) -> Found:
    """Return what `work` returns, which reads and writes for a request, in one transaction; as `read` in all else.

    It is not done once more by itself: when the answer is lost on its way nobody knows whether the transaction was
    committed. So let it be work that may be repeated.
    """
    return _ask(work, brief=False, repeats=0)


def _ask(work: Callable[[], Found], *, brief: bool, repeats: int) -> Found:
    if connection.in_atomic_block:
        return work()
    _refuse_while_open()
    if not _turns.acquire(timeout=TURN_TIMEOUT):
        raise DatabaseAwayError("Too many others wait to read from the database")
    try:
        # Others may have found out meanwhile.
        _refuse_while_open()
        connecting = CONNECTION_TIMEOUT if CIRCUIT_BREAKER.reached else _FIRST_CONNECTION_TIMEOUT
        timeouts = DatabaseTimeouts(connecting, ANSWER_TIMEOUT)
        with apply_timeouts(timeouts):
            while True:
                _connect()
                try:
                    return work() if brief else _within_time(work)
                except (OperationalError, InterfaceError) as error:
                    if not repeats or timeouts.silence <= 0 or not _is_disconnect(error):
                        raise
                    log.warning("database.read_again", error=type(error.__cause__ or error).__name__)
                repeats -= 1
                connection.close()
                # A server that starts again is waited for as long as its answer would have been.
                timeouts.connection = max(connecting, timeouts.silence)
    finally:
        # A worker must not hold a database connection while a model answers.
        connection.close()
        _turns.release()


def release_connection() -> None:
    """Give the connection back to the pool before something that may take its time; inside a transaction it stays."""
    if not is_in_transaction():
        connection.close()


def is_in_transaction() -> bool:
    """Tell whether a transaction of the primary is open: what follows has to see what was written in it."""
    return bool(connection.in_atomic_block)


def _refuse_while_open() -> None:
    if CIRCUIT_BREAKER.open:
        raise DatabaseAwayError("The database did not answer a moment ago")


def _connect() -> None:
    try:
        connection.ensure_connection()
    except (OperationalError, InterfaceError) as error:
        CIRCUIT_BREAKER.record_failure(error)
        raise
    CIRCUIT_BREAKER.record_success()


def _is_disconnect(error: Exception) -> bool:
    """Tell whether the connection ended, rather than that the server refused a statement."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error):
        return False
    # What the server did not say itself, libpq and psycopg say of a connection that is gone.
    state = cause.sqlstate
    return state is None or state in _SHUTDOWNS or state.startswith(_CONNECTION_EXCEPTION)


def _within_time(work: Callable[[], Found]) -> Found:
    """Read with a limit that the server keeps too: what nobody waits for any more must not go on there."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(int(ANSWER_TIMEOUT * 1000))])
        return work()
