"""A caller that waits for a connection to a database that was away is served when it is back, before later callers."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg_pool import ConnectionPool, PoolTimeout

from gateway_project.postgresql.base import wait_for_connection

pytestmark = pytest.mark.django_db(transaction=True)


class Returning(psycopg.Connection[Any]):
    """Connections to a database that is away until a moment, monotonic."""

    back_at = 0.0

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Any:
        if time.monotonic() < cls.back_at:
            raise psycopg.OperationalError("the database system is in recovery mode")
        return super().connect(conninfo, **kwargs)


def make_pool(**options: Any) -> ConnectionPool[Any]:
    """Return a pool that gives up soon after a connection could not be made."""
    kwargs = {name: value for name, value in connection.get_connection_params().items() if name != "pool"}
    return ConnectionPool(connection_class=Returning, kwargs=kwargs, max_size=8, reconnect_timeout=0.2, **options)


def test_who_waits_while_the_database_is_away_is_served_when_it_is_back() -> None:
    Returning.back_at = time.monotonic() + 2
    with make_pool(min_size=1, open=False) as pool:
        conn = wait_for_connection(pool, 25)
        assert conn.execute("SELECT 1").fetchone() == (1,)
        pool.putconn(conn)


def test_dead_connections_do_not_use_up_the_time_of_who_waits() -> None:
    Returning.back_at = 0.0
    with make_pool(min_size=8, check=ConnectionPool.check_connection, open=False) as pool:
        pool.wait()
        connections = [pool.getconn() for _ in range(8)]
        with connection.cursor() as cursor:
            for conn in connections:
                cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
                pool.putconn(conn)
        # With a pause that doubles after each, eight of them take a minute.
        conn = wait_for_connection(pool, 20)
        assert conn.execute("SELECT 1").fetchone() == (1,)
        pool.putconn(conn)


def test_a_database_that_stays_away_is_waited_for_no_longer_than_said() -> None:
    Returning.back_at = time.monotonic() + 600
    with make_pool(min_size=1, open=False) as pool, pytest.raises(PoolTimeout):
        wait_for_connection(pool, 0.7)
