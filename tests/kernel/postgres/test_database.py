"""Reads on a request's path: they give up on a silent server, and later requests do not ask it until it answers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from apps.kernel.postgres import database
from apps.kernel.postgres.database import DatabaseAwayError, DatabaseCircuitBreaker, DatabaseTimeouts, apply_timeouts
from gateway_project.configuration.data_directory import PROJECT
from tests.stack.product import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def circuit(monkeypatch: pytest.MonkeyPatch) -> DatabaseCircuitBreaker:
    """A circuit of the test's own."""
    circuit = DatabaseCircuitBreaker()
    monkeypatch.setattr(database, "CIRCUIT_BREAKER", circuit)
    return circuit


@pytest.fixture
def silent() -> Iterator[int]:
    """The server's side of this test's connection, stopped: it neither answers nor hangs up."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = int(cursor.fetchone()[0])
    os.kill(pid, signal.SIGSTOP)
    yield pid
    os.kill(pid, signal.SIGCONT)
    connection.close()


def one() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return int(cursor.fetchone()[0])


def test_a_read_gives_the_connection_back() -> None:
    assert database.read(one) == 1
    assert connection.connection is None


def test_a_silent_server_is_given_up(silent: int) -> None:
    """Without a limit of ours this would wait as long as the server is silent."""
    begun = time.monotonic()
    with (
        apply_timeouts(DatabaseTimeouts(0.3, 0.3)),
        pytest.raises(OperationalError, match="did not answer in time"),
    ):
        one()
    assert time.monotonic() - begun < 5
    # No other request gets a connection that is still in use.
    assert connection.connection is not None
    used = connection.connection
    connection.close()
    assert used.closed
    assert database.read(one) == 1


def test_the_pool_does_not_hand_out_a_silent_connection(silent: int) -> None:
    connection.close()
    begun = time.monotonic()
    for _ in range(20):
        with suppress(OperationalError):
            assert database.read(one) == 1
    assert time.monotonic() - begun < 5


def test_a_statement_that_takes_too_long_is_ended_by_the_server_too() -> None:
    def slow() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone() == ("2s",)

    database.read(slow)
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() != ("2s",)


def test_a_failure_is_remembered_and_not_found_out_again(
    monkeypatch: pytest.MonkeyPatch, circuit: DatabaseCircuitBreaker
) -> None:
    tries = []

    def refuse() -> None:
        tries.append(1)
        raise OperationalError("connection refused")

    with monkeypatch.context() as away:
        away.setattr(connection, "ensure_connection", refuse)
        with pytest.raises(OperationalError, match="refused"):
            database.read(one)
        for _ in range(50):
            with pytest.raises(DatabaseAwayError):
                database.read(one)
        assert (len(tries), database.is_away()) == (1, True)
    circuit._next_try = 0.0
    assert database.read(one) == 1
    assert not database.is_away()


def test_one_slow_answer_does_not_take_the_database_for_away() -> None:
    """Whose rows take long must not make everybody else's requests fail."""

    def slow() -> None:
        with connection.cursor() as cursor, apply_timeouts(DatabaseTimeouts(1, 0.2)):
            cursor.execute("SELECT pg_sleep(1)")

    with pytest.raises(OperationalError):
        database.read(slow)
    assert not database.is_away()
    assert database.read(one) == 1


def end_by_the_server() -> None:
    """End this test's connection in the middle of a statement, as a server that dies does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid(), 5000)")


def end_by_the_network() -> None:
    """Close this test's connection while it is in use, and ask."""
    connection.connection.close()
    one()


class Dying:
    """A read whose connection ends in the middle, so many times."""

    def __init__(self, end: Callable[[], None], times: int) -> None:
        self.end, self.times, self.calls = end, times, 0

    def __call__(self) -> int:
        self.calls += 1
        found = one()
        if self.calls <= self.times:
            self.end()
        return found


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("end", [end_by_the_server, end_by_the_network])
def test_a_read_whose_connection_ends_in_mid_statement_is_done_again(end: Callable[[], None], brief: bool) -> None:
    read = Dying(end, times=1)
    assert database.read(read, brief=brief) == 1
    assert read.calls == 2
    assert connection.connection is None
    assert not database.is_away()


def test_a_read_is_done_again_once_and_not_for_ever() -> None:
    read = Dying(end_by_the_server, times=5)
    with pytest.raises(OperationalError, match="terminating connection"):
        database.read(read)
    assert read.calls == 2


def test_a_write_is_never_done_twice() -> None:
    write = Dying(end_by_the_server, times=1)
    with pytest.raises(OperationalError, match="terminating connection"):
        database.write(write)
    assert write.calls == 1


@pytest.mark.parametrize("silent_for", [0.2, 5.0])
def test_a_slow_read_is_not_done_again(monkeypatch: pytest.MonkeyPatch, silent_for: float) -> None:
    """Neither where we gave it up, nor where the server ended it: its time is over."""
    monkeypatch.setattr(database, "ANSWER_TIMEOUT", silent_for)
    calls = []

    def slow() -> None:
        calls.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 400")
            cursor.execute("SELECT pg_sleep(3)")

    with pytest.raises(OperationalError):
        database.read(slow)
    assert len(calls) == 1


def test_few_read_at_a_time_and_others_wait_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool has connections left for everybody else."""
    go_on, reading, most = Event(), [], []

    def hold() -> None:
        reading.append(1)
        most.append(len(reading))
        assert go_on.wait(60)
        reading.pop()

    readers = [Thread(target=database.read, args=(hold,)) for _ in range(12)]
    for reader in readers:
        reader.start()
    eventually(lambda: len(reading) == database._MAX_READERS)
    monkeypatch.setattr(database, "TURN_TIMEOUT", 0.05)
    with pytest.raises(DatabaseAwayError, match="Too many others"):
        database.read(one)
    go_on.set()
    for reader in readers:
        reader.join(10)
    assert (len(most), max(most)) == (12, database._MAX_READERS)
    assert database.read(one) == 1


def test_what_is_asked_of_the_pool_is_answered_soon_or_never(silent: int) -> None:
    begun = time.monotonic()
    with pytest.raises(psycopg.OperationalError):
        connection.connection.execute("")
    assert time.monotonic() - begun < 5


def test_a_released_connection_goes_back_unless_a_transaction_is_open() -> None:
    assert one() == 1
    with transaction.atomic():
        database.release_connection()
        assert connection.connection is not None
        assert one() == 1
    database.release_connection()
    assert connection.connection is None


def test_connections_are_released_in_one_place() -> None:
    code = [path for folder in ("apps", "gateway_project") for path in (PROJECT / folder).rglob("*.py")]
    asking = {path.relative_to(PROJECT) for path in code if "in_atomic_block" in path.read_text()}
    assert asking == {Path("apps/kernel/postgres/database.py")}
