"""Reads from a real streaming replica: read while it is fit, left for the primary at once while it is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connections
from pytest_django import DjangoDbBlocker

from apps.kernel.postgres import replica
from apps.kernel.postgres.replica import Reason, Replica, measure_lag, read_from
from apps.kernel.store_urls import read_replicas
from gateway_project.configuration import env
from tests.stack.product import eventually
from tests.support.replicated_postgres import ReplicatedPostgres, Server

PRIMARY, COPY = "replica_test_primary", "replica_test_copy"
# Seconds by which the replica may be behind.
MAX_LAG = 0.3


@pytest.fixture(scope="module")
def kept() -> Iterator[list[ReplicatedPostgres]]:
    """The servers of the tests so far; none where they are of no use to the next one."""
    kept: list[ReplicatedPostgres] = []
    yield kept
    for made in kept:
        made.close()


@pytest.fixture
def servers(
    kept: list[ReplicatedPostgres], django_db_blocker: DjangoDbBlocker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ReplicatedPostgres]:
    monkeypatch.setattr(replica, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(replica, "COOLDOWN", 0.5)
    if not kept:
        kept.append(ReplicatedPostgres())
        kept[0].primary.run("CREATE TABLE seen (n int)")
    (made,) = kept
    made.primary.run("TRUNCATE seen")
    # The test before may have paused it, and left slow reads behind.
    made.replica.run("SELECT pg_wal_replay_resume()")
    made.replica.run("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    usual = connections.settings["default"]
    for alias, server in ((PRIMARY, made.primary), (COPY, made.replica)):
        words = env.database(server.url)
        options = {"connect_timeout": 2}
        connections.settings[alias] = {**usual, **words, "ENGINE": usual["ENGINE"], "OPTIONS": options}
    made.catch_up()
    with django_db_blocker.unblock():
        yield made
        for alias in (PRIMARY, COPY):
            connections[alias].close()
            del connections[alias]
            del connections.settings[alias]


def who_answers(replicas: list[Replica]) -> str:
    def read(using: str) -> str:
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM seen")
            cursor.fetchone()
        return using

    return read_from(replicas, read, PRIMARY)


def unfit(reason: Reason) -> float:
    found: Any = replica.UNFIT.labels(COPY, reason)._value.get()
    return float(found)


def reads(source: str) -> float:
    found: Any = replica.READS.labels(source)._value.get()
    return float(found)


def is_older(seconds: float) -> bool:
    """Return whether the last transaction that the replica has is older than that."""
    return (measure_lag(COPY, PRIMARY).seconds or 0.0) > seconds


def are_reading(server: Server, readers: int) -> bool:
    """Return whether so many connections of a server are in the middle of a slow read."""
    return server.run("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == [(readers,)]


def test_a_replica_that_is_fit_is_read_also_when_nothing_was_written_for_long(servers: ReplicatedPostgres) -> None:
    replicas = [Replica(COPY, PRIMARY, max_lag=MAX_LAG)]
    before = reads("replica")
    assert who_answers(replicas) == COPY
    # Older than the bound, and still all that there is.
    eventually(lambda: is_older(MAX_LAG))
    assert who_answers(replicas) == COPY
    assert reads("replica") == before + 2


def test_a_replica_that_is_behind_is_left_until_it_has_caught_up(servers: ReplicatedPostgres) -> None:
    replicas, before = [Replica(COPY, PRIMARY, max_lag=MAX_LAG)], unfit(Reason.BEHIND)
    servers.replica.run("SELECT pg_wal_replay_pause()")
    eventually(lambda: servers.replica.run("SELECT pg_get_wal_replay_pause_state()") == [("paused",)])
    servers.primary.run("INSERT INTO seen VALUES (1)")
    eventually(lambda: is_older(MAX_LAG))
    assert who_answers(replicas) == PRIMARY
    assert (replicas[0].reason, unfit(Reason.BEHIND)) == (Reason.BEHIND, before + 1)
    servers.replica.run("SELECT pg_wal_replay_resume()")
    servers.catch_up()
    # It is remembered for some seconds, and not looked at meanwhile.
    assert who_answers(replicas) == PRIMARY
    assert unfit(Reason.BEHIND) == before + 1
    eventually(lambda: who_answers(replicas) == COPY)


def test_lag_is_what_was_written_and_not_replayed(servers: ReplicatedPostgres) -> None:
    assert measure_lag(COPY, PRIMARY).bytes_left == 0
    servers.replica.run("SELECT pg_wal_replay_pause()")
    eventually(lambda: servers.replica.run("SELECT pg_get_wal_replay_pause_state()") == [("paused",)])
    ((before,),) = servers.replica.run("SELECT pg_last_wal_replay_lsn()::text")
    servers.primary.run("INSERT INTO seen SELECT generate_series(1, 1000)")
    eventually(lambda: is_older(0.5))
    left, seconds = measure_lag(COPY, PRIMARY)
    ((written,),) = servers.primary.run(f"SELECT (pg_current_wal_lsn() - '{before}'::pg_lsn)::bigint")
    assert 50_000 < left <= written
    assert seconds is not None
    assert seconds > 0.5


def test_a_replica_that_is_killed_is_left_at_once_and_read_when_it_is_back(servers: ReplicatedPostgres) -> None:
    replicas = [Replica(COPY, PRIMARY, max_lag=MAX_LAG)]
    assert who_answers(replicas) == COPY
    servers.replica.kill()
    began = time.monotonic()
    assert [who_answers(replicas) for _ in range(20)] == [PRIMARY] * 20
    assert time.monotonic() - began < 5
    assert replicas[0].reason is Reason.AWAY
    servers.replica.start()
    eventually(lambda: who_answers(replicas) == COPY)


def test_a_replica_that_hangs_is_left_within_its_time(servers: ReplicatedPostgres) -> None:
    replicas = [Replica(COPY, PRIMARY, max_lag=MAX_LAG)]
    servers.replica.hang()
    began = time.monotonic()
    assert who_answers(replicas) == PRIMARY
    assert time.monotonic() - began < 10
    servers.replica.go_on()
    eventually(lambda: who_answers(replicas) == COPY)


def read_slowly(replicas: list[Replica], seconds: float, asked: list[str]) -> str:
    """Return who answered a read that takes a replica so long."""

    def read(using: str) -> str:
        asked.append(using)
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [seconds if using == COPY else 0])
        return using

    return read_from(replicas, read, PRIMARY)


def _has_asked(asked: list[str], times: int) -> bool:
    return asked == [COPY] * times


def test_a_replica_that_hangs_in_the_middle_of_reads_is_left_by_all_of_them(servers: ReplicatedPostgres) -> None:
    replicas, before = [Replica(COPY, PRIMARY, max_lag=60)], unfit(Reason.AWAY)
    asked: list[str] = []
    found: list[tuple[str, float]] = []

    def work() -> None:
        began = time.monotonic()
        found.append((read_slowly(replicas, 30, asked), time.monotonic() - began))
        connections[PRIMARY].close()

    assert who_answers(replicas) == COPY
    readers = [threading.Thread(target=work) for _ in range(3)]
    for number, reader in enumerate(readers, 1):
        # While one looks how the replica does, others would go to the primary.
        reader.start()
        eventually(partial(_has_asked, asked, number))
    eventually(lambda: are_reading(servers.replica, 3))
    servers.replica.hang()
    for reader in readers:
        reader.join(20)
    assert [who for who, _ in found] == [PRIMARY] * 3
    # Silence of 1.5 s, and a second without an answer; not the ten that a slow read may take.
    assert max(seconds for _, seconds in found) < 6
    assert (replicas[0].reason, unfit(Reason.AWAY)) == (Reason.AWAY, before + 1)
    servers.replica.go_on()
    eventually(lambda: who_answers(replicas) == COPY)
    assert not replicas[0].hangs


def test_a_slow_read_stays_with_a_replica_that_answers_others(
    servers: ReplicatedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "PROBE_EVERY", 0.3)
    replicas, asked = [Replica(COPY, PRIMARY, max_lag=60)], list[str]()
    doubts: list[bool] = []
    answers = Replica._answers

    def counted(doubted: Replica) -> bool:
        doubts.append(answers(doubted))
        return doubts[-1]

    monkeypatch.setattr(Replica, "_answers", counted)
    assert read_slowly(replicas, 2, asked) == COPY
    assert asked == [COPY]
    assert len(doubts) >= 3
    assert set(doubts) == {True}
    assert replicas[0].reason is None


def test_a_replica_that_was_promoted_is_none_any_more(
    kept: list[ReplicatedPostgres], servers: ReplicatedPostgres
) -> None:
    servers.promote()
    replicas = [Replica(COPY, PRIMARY, max_lag=MAX_LAG)]
    assert who_answers(replicas) == PRIMARY
    assert replicas[0].reason is Reason.PROMOTED
    kept.pop().close()


def test_a_read_in_conflict_with_recovery_is_done_by_the_primary(servers: ReplicatedPostgres) -> None:
    servers.primary.run("INSERT INTO seen SELECT generate_series(1, 100)")
    servers.catch_up()
    replicas, before = [Replica(COPY, PRIMARY, max_lag=60)], unfit(Reason.CONFLICT)
    asked: list[str] = []

    def read(using: str) -> str:
        asked.append(using)
        with connections[using].cursor() as cursor:
            # A snapshot that still needs the rows that are vacuumed meanwhile.
            cursor.execute("SELECT pg_sleep(%s), count(*) FROM seen", [20 if using == COPY else 0])
        return using

    def clean_up() -> None:
        eventually(lambda: are_reading(servers.replica, 1))
        servers.primary.run("DELETE FROM seen")
        servers.primary.run("VACUUM seen")

    cleaner = threading.Thread(target=clean_up)
    cleaner.start()
    assert read_from(replicas, read, PRIMARY) == PRIMARY
    cleaner.join()
    assert (asked, unfit(Reason.CONFLICT)) == ([COPY, PRIMARY], before + 1)


def test_what_takes_too_long_is_not_asked_of_the_primary_too(servers: ReplicatedPostgres) -> None:
    asked: list[str] = []

    def read(using: str) -> None:
        asked.append(using)
        with connections[using].cursor() as cursor:
            cursor.execute("SET statement_timeout = 50")
            cursor.execute("SELECT pg_sleep(5)")

    with pytest.raises(OperationalError):
        read_from([Replica(COPY, PRIMARY, max_lag=MAX_LAG)], read, PRIMARY)
    assert asked == [COPY]


def test_another_replica_is_read_where_one_is_unfit(servers: ReplicatedPostgres) -> None:
    gone = "replica_test_gone"
    connections.settings[gone] = {**connections.settings[COPY], "PORT": "1"}
    try:
        replicas = [Replica(alias, PRIMARY, max_lag=MAX_LAG) for alias in (gone, COPY)]
        assert [who_answers(replicas) for _ in range(4)] == [COPY] * 4
        assert [one.reason for one in replicas] == [Reason.AWAY, None]
    finally:
        del connections.settings[gone]


@pytest.mark.django_db
def test_within_a_transaction_the_primary_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "REPLICAS", [Replica("never_asked", max_lag=5)])
    assert replica.read(lambda using: using) == "default"


def test_urls_of_replicas_are_read() -> None:
    assert read_replicas("") == []
    one, two = "postgresql://u:p%2Cw@one:5432/gateway", "postgres://u@two/gateway?sslmode=require"
    assert read_replicas(f" {one} , {two}") == [one, two]
    assert settings.DATABASE_REPLICA_URLS == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("mysql://one/gateway", "URL 1 must begin with postgresql:// or postgres://"),
        ("postgres://one/x,two", "URL 1 has a comma in its path"),
        ("postgres://one,two/x", "URL 1 lists hosts: each replica needs its own URL"),
        ("postgres://one/x?target_session_attrs=standby", "URL 1 has target_session_attrs"),
        ("postgres://one:nan/x", "host 1 has no port from 1 to 65535"),
        (",".join(["postgres://one/x"] * 9), "at most 8 are allowed"),
    ],
)
def test_a_bad_list_of_replicas_is_refused_by_name(text: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_REPLICA_URL", text)
    with env.collect_problems() as problems:
        assert env.replica_urls("DATABASE_REPLICA_URL") == []
    (problem,) = problems
    assert problem.startswith("DATABASE_REPLICA_URL must name read replicas, separated by commas: ")
    assert wrong in problem
