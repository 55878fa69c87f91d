"""Connections to PostgreSQL on a request's path: timeouts, limited concurrency, the order of hosts, a circuit breaker.

A hanging server (stopped, cut off, its disk stuck) neither answers nor refuses, so without timeouts every caller would
hang. Here the failure is detected once, remembered, and retried in the background, not by a request. The host that
accepted the last connection comes first, else each new connection would wait for one that is down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
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


class DatabaseTimeouts:
    """Timeouts of one piece of work: seconds for a connection, and seconds of silence in all its statements."""

    __slots__ = ("connection", "silence")

    def __init__(self, connection: float, silence: float) -> None:
        self.connection, self.silence = connection, silence

    def is_over(self, seconds: float) -> bool:
        """Record seconds without data; return whether the timeout has passed."""
        self.silence -= seconds
        return self.silence <= 0


_patience: ContextVar[DatabaseTimeouts | None] = ContextVar("database_patience", default=None)


def current_timeouts() -> DatabaseTimeouts | None:
    """Return the timeouts of the current work; None for the defaults."""
    return _patience.get()


@contextmanager
def apply_timeouts(to: DatabaseTimeouts | None) -> Iterator[None]:
    """Apply timeouts to database work in the block, which raises OperationalError when they pass.

    None restores the defaults, for work that starts here and continues afterwards, because greenlets inherit timeouts.
    """
    token = _patience.set(to)
    try:
        yield
    finally:
        _patience.reset(token)


# By list of hosts: the host and port that accepted the last connection. A process has at most one list.
_taken: dict[tuple[str, str], tuple[str, str]] = {}


def order_hosts(words: dict[str, Any]) -> dict[str, Any]:
    """Return connection parameters with the last successful host first; unchanged for a single host."""
    listed = _listed(words)
    if listed is None:
        return words
    hosts = list(zip(listed[0].split(","), listed[1].split(","), strict=True))
    first = _taken.get(listed)
    # A stable sort keeps the order of the others.
    hosts.sort(key=lambda one: one != first)
    return {**words, "host": ",".join(host for host, _ in hosts), "port": ",".join(port for _, port in hosts)}


def note_host(words: dict[str, Any], host: str, port: int) -> None:
    """Record the host that accepted a connection for these parameters, as they were before `order_hosts`."""
    listed = _listed(words)
    if listed is not None:
        _taken[listed] = (host, str(port))


def _listed(words: dict[str, Any]) -> tuple[str, str] | None:
    host, port = str(words.get("host") or ""), str(words.get("port") or "")
    return (host, port) if "," in host and host.count(",") == port.count(",") else None


log = structlog.get_logger(__name__)

Found = TypeVar("Found")

# Timeouts in seconds of a read on a request's path: for a connection, for all answers together, and for its turn while
# others read.
CONNECTION_TIMEOUT, ANSWER_TIMEOUT, TURN_TIMEOUT = 0.5, 2.0, 5.0
# Pooled connections that reads leave to others, and maximum concurrent reads.
_LEFT_TO_OTHERS, _MAX_READERS = 2, 8
# Timeout of the first connection of a process, which has to be opened, perhaps on a busy machine.
_FIRST_CONNECTION_TIMEOUT = 2.0
# Seconds between retries while the database is down.
_PAUSES = (0.2, 1.0, 2.0, 4.0, 5.0)
# Interval at which psycopg checks while it waits. Timeouts are counted in intervals and not by the clock, so that a
# worker that was too busy to read the answer does not take the database for hanging.
_LOOK = 0.1
# Seconds after the server's own statement timeout until a connection is given up.
_GRACE = 5.0
# SQLSTATE codes when the server ends a connection: by an operator, after a crash, during startup; and the class of
# connection errors.
_SHUTDOWNS, _CONNECTION_EXCEPTION = frozenset({"57P01", "57P02", "57P03"}), "08"


def statement_limit_option() -> str:
    """Return the connection options of web workers; empty without a statement timeout."""
    limit = settings.DATABASE_STATEMENT_TIMEOUT
    return f"-c statement_timeout={int(limit * 1000)}" if limit else ""


class DatabaseAwayError(OperationalError):
    """The database is known to be down, or too many others are waiting for it."""


class TimeoutConnection(psycopg.Connection[Any]):
    """A connection with timeouts against hanging servers, on a request's path and in any web worker.

    A connection that was given up in the middle of a statement is closed by the pool on return.
    """

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> TimeoutConnection:
        """Connect. In web workers, the server ends statements that take longer than DATABASE_STATEMENT_TIMEOUT."""
        if is_module_patched("socket") and (limit := statement_limit_option()):
            kwargs["options"] = f"{kwargs.get('options') or ''} {limit}".strip()
        made = super().connect(conninfo, **order_hosts(kwargs))
        note_host(kwargs, made.info.host, made.info.port)
        return made

    def wait(self, gen: PQGen[Found], interval: float = _LOOK, timeout: float | None = None) -> Found:
        """Wait for an answer. Raises psycopg.OperationalError on timeout."""
        limit = current_timeouts()
        if limit is None:
            if not is_module_patched("socket") or not settings.DATABASE_STATEMENT_TIMEOUT:
                return super().wait(gen, interval, timeout)
            limit = DatabaseTimeouts(0.0, settings.DATABASE_STATEMENT_TIMEOUT + _GRACE)
        return super().wait(_until_silent(gen, limit), _LOOK, timeout)

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        """Execute. The pool's empty check (`""`) must succeed at once."""
        if query == "":
            limit = current_timeouts()
            with apply_timeouts(DatabaseTimeouts(0.0, (limit or _CHECK).connection)):
                return super().execute(query, *args, **kwargs)
        return super().execute(query, *args, **kwargs)


_CHECK = DatabaseTimeouts(2.0, 2.0)


def _until_silent(gen: PQGen[Found], limit: DatabaseTimeouts) -> Generator[Any, Any, Found]:
    """Yield what `gen` waits for; end it if nothing arrives for too long."""
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
    """Whether the database is known to be down, with one greenlet that retries at growing intervals."""

    def __init__(self) -> None:
        self._away = False
        # Whether this process has ever reached the database.
        self.reached = False
        self._tries = 0
        self._next_try = 0.0

    @property
    def open(self) -> bool:
        """Whether a query is pointless right now."""
        if self._away and not is_module_patched("socket"):
            # Without a background retry here, a caller retries now and then.
            return time.monotonic() < self._next_try
        return self._away

    def record_failure(self, error: Exception) -> None:
        """Record that no connection could be opened."""
        in_background = is_module_patched("socket")
        if self._away and in_background:
            # Another greenlet is retrying.
            return
        self._put_off()
        if not self._away:
            self._away = True
            log.error("database.away", error=type(error).__name__)
            if in_background:
                gevent.spawn(self._keep_trying)

    def record_success(self) -> None:
        """Record a working connection."""
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
            except Exception:  # noqa: BLE001 - retried whatever it is
                self._put_off()
            finally:
                with suppress(Exception):
                    connection.close()

    def _put_off(self) -> None:
        pause = _PAUSES[min(self._tries, len(_PAUSES) - 1)]
        self._tries += 1
        self._next_try = time.monotonic() + pause


CIRCUIT_BREAKER = DatabaseCircuitBreaker()
_size = settings.DATABASE_POOL_SIZE or _MAX_READERS
_turns = BoundedSemaphore(max(1, min(_MAX_READERS, _size - _LEFT_TO_OTHERS)))


def is_away() -> bool:
    """Return whether the database is known to be down, so that callers need not wait for a timeout."""
    return CIRCUIT_BREAKER.open


def read(work: Callable[[], Found], *, brief: bool = False) -> Found:
    """Return the result of `work`, which reads from the database for a request, and release the connection.

    Waits for its turn, a connection and answers, each with a timeout. If the connection ends (a crash, or an operator),
    it is replaced and `work` runs again. `brief` work is one indexed look-up, which is spared three round trips for a
    server-side timeout. Raises DatabaseError, and DatabaseAwayError at once while the database is known to be down.
    """
    return _ask(work, brief=brief, repeats=1)


def write(work: Callable[[], Found]) -> Found:
    """Return the result of `work`, which reads and writes for a request, in one transaction; otherwise like `read`.

    It is not repeated automatically: if the answer is lost, it is unknown whether the transaction was committed. So the
    work must be safe to repeat.
    """
    return _ask(work, brief=False, repeats=0)


def _ask(work: Callable[[], Found], *, brief: bool, repeats: int) -> Found:
    if connection.in_atomic_block:
        return work()
    _refuse_while_open()
    if not _turns.acquire(timeout=TURN_TIMEOUT):
        raise DatabaseAwayError("Too many others wait to read from the database")
    try:
        # Others may have detected a failure meanwhile.
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
                # A restarting server gets as much time as an answer would.
                timeouts.connection = max(connecting, timeouts.silence)
    finally:
        # A worker must not hold a database connection while a model answers.
        connection.close()
        _turns.release()


def release_connection() -> None:
    """Return the connection to the pool before slow work; inside a transaction it stays."""
    if not is_in_transaction():
        connection.close()


def is_in_transaction() -> bool:
    """Return whether a transaction on the primary is open, so that following reads must see its writes."""
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
    """Return whether the connection ended, as opposed to a refused statement."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error):
        return False
    # Without a SQLSTATE, the error comes from libpq or psycopg: the connection is gone.
    state = cause.sqlstate
    return state is None or state in _SHUTDOWNS or state.startswith(_CONNECTION_EXCEPTION)


def _within_time(work: Callable[[], Found]) -> Found:
    """Read with a server-side timeout, so that abandoned queries do not keep running."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(int(ANSWER_TIMEOUT * 1000))])
        return work()
