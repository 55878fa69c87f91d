"""A read replica behind PgBouncer in transaction mode: read, left and found again as one that is reached directly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from apps.kernel.postgres.database import DatabaseTimeouts, apply_timeouts
from apps.kernel.postgres.replica import Reason, Replica, measure_lag
from gateway_project.configuration import env
from gateway_project.diagnosis.database import refuses_statement_limit
from tests.kernel.postgres.test_replica import (
    COPY,
    PRIMARY,
    are_reading,
    kept,
    read_slowly,
    servers,
    unfit,
    who_answers,
)
from tests.stack.product import eventually
from tests.support.pgbouncer import PROGRAM, PgBouncer, pgbouncer
from tests.support.replicated_postgres import ReplicatedPostgres

__all__ = ["kept", "servers"]
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (Debian: apt install pgbouncer)")


@pytest.fixture
def pooler(servers: ReplicatedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgBouncer]:
    # A server that cannot be reached is tried again after so many seconds, fifteen unless said.
    folder = tmp_path_factory.mktemp("pooler") / "replica"
    with pgbouncer(folder, servers.replica.url, "server_login_retry = 1") as running:
        lead_to(running.url)
        yield running


def lead_to(url: str) -> None:
    """Have the replica's connections lead there."""
    usual = connections.settings[COPY]
    options = {"connect_timeout": 2}
    connections.settings[COPY] = {**usual, **env.database(url), "ENGINE": usual["ENGINE"], "OPTIONS": options}
    connections[COPY].close()
    del connections[COPY]


def test_it_is_read_and_its_lag_is_told(servers: ReplicatedPostgres, pooler: PgBouncer) -> None:
    replicas = [Replica(COPY, PRIMARY, max_lag=0.3)]
    assert [who_answers(replicas) for _ in range(3)] == [COPY] * 3
    servers.catch_up()
    assert measure_lag(COPY, PRIMARY).bytes_left == 0
    with connections[COPY].cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery(), inet_server_port()")
        assert cursor.fetchone() == (True, servers.replica.port)


def test_a_replica_behind_it_that_hangs_in_the_middle_of_a_read_is_left(
    servers: ReplicatedPostgres, pooler: PgBouncer
) -> None:
    replicas, before = [Replica(COPY, PRIMARY, max_lag=60)], unfit(Reason.AWAY)
    asked: list[str] = []

    def hang() -> None:
        eventually(lambda: are_reading(servers.replica, 1))
        servers.replica.hang()

    hanger = threading.Thread(target=hang)
    hanger.start()
    began = time.monotonic()
    assert read_slowly(replicas, 30, asked) == PRIMARY
    assert time.monotonic() - began < 6
    hanger.join()
    assert (asked, unfit(Reason.AWAY)) == ([COPY, PRIMARY], before + 1)
    servers.replica.go_on()
    eventually(lambda: who_answers(replicas) == COPY)


@pytest.mark.parametrize("what", ["pooler", "replica"])
def test_whichever_of_the_two_is_killed_the_primary_is_read_until_it_is_back(
    servers: ReplicatedPostgres, pooler: PgBouncer, what: str
) -> None:
    replicas, killed = [Replica(COPY, PRIMARY, max_lag=60)], pooler if what == "pooler" else servers.replica
    assert who_answers(replicas) == COPY
    killed.kill()
    began = time.monotonic()
    assert [who_answers(replicas) for _ in range(20)] == [PRIMARY] * 20
    assert time.monotonic() - began < 5
    assert replicas[0].reason is Reason.AWAY
    killed.start()
    eventually(lambda: who_answers(replicas) == COPY)


def test_the_doctor_knows_that_web_workers_are_refused(
    servers: ReplicatedPostgres, tmp_path_factory: pytest.TempPathFactory, settings: Any
) -> None:
    folder = tmp_path_factory.mktemp("poolers")
    with (
        pgbouncer(folder / "strict", servers.replica.url) as strict,
        pgbouncer(folder / "open", servers.replica.url, "ignore_startup_parameters = options") as lenient,
        apply_timeouts(DatabaseTimeouts(5, 5)),
    ):
        told = []
        for url, limit in ((strict.url, 30), (lenient.url, 30), (strict.url, 0)):
            settings.DATABASE_STATEMENT_TIMEOUT = limit
            lead_to(url)
            told.append(refuses_statement_limit(COPY))
    assert told == [True, False, False]
