"""URLs of PostgreSQL that list hosts: what they may say, and in which order the hosts are tried."""

from __future__ import annotations

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured

from apps.kernel.postgres import database
from apps.kernel.postgres.database import TimeoutConnection
from gateway_project.configuration import env
from tests.stack.product import free_port
from tests.support.replicated_postgres import ReplicatedPostgres


def test_hosts_are_given_to_libpq_with_the_role_that_is_looked_for() -> None:
    found = env.database("postgresql://u:p%2Cw@one:5433,[::1],two/gateway?sslmode=require")
    assert found["HOST"] == "one,::1,two"
    assert found["PORT"] == "5433,5432,5432"
    assert (found["NAME"], found["USER"], found["PASSWORD"]) == ("gateway", "u", "p,w")
    assert found["OPTIONS"] == {"sslmode": "require", "target_session_attrs": "read-write"}
    primary = env.database("postgres://one,two/gateway?target_session_attrs=primary")
    assert primary["OPTIONS"] == {"target_session_attrs": "primary"}
    one = env.database("postgresql://u@one:5433/gateway")
    assert (one["HOST"], one["PORT"]) == ("one", 5433)
    assert "target_session_attrs" not in one.get("OPTIONS", {})


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("postgresql://u:hunter2@one,two/x?target_session_attrs=any", "must be read-write or primary"),
        ("postgresql://u:hunter2@one,two/x?target_session_attrs=prefer-standby", "must be read-write or primary"),
        ("postgresql://u:hunter2@one,two/x?host=three", "not in host="),
        ("postgresql://u:hunter2@one,/x", "host 2 is not host:port"),
        ("postgresql://u:hunter2@one:0,two/x", "host 1 is not host:port"),
        ("postgresql://u:hunter2@one,two:99999/x", "host 2 has no port from 1 to 65535"),
    ],
)
def test_a_bad_list_of_hosts_is_refused_by_name(url: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL does not name a primary and its replicas") as refused:
        env.store_url("DATABASE_URL", ("postgresql", "postgres"))
    assert wrong in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_host_that_took_the_last_connection_is_tried_first() -> None:
    words = {"host": "one,two,three", "port": "1,2,3", "user": "u"}
    assert database.order_hosts(words) == words
    database.note_host(words, "three", 3)
    assert database.order_hosts(words) == {"host": "three,one,two", "port": "3,1,2", "user": "u"}
    alone = {"host": "one", "port": 5432}
    database.note_host(alone, "one", 5432)
    assert database.order_hosts(alone) == alone


def test_connections_lead_to_the_server_that_takes_writes() -> None:
    servers = ReplicatedPostgres()
    try:
        replica_first = f"{servers.replica.port},{free_port()},{servers.primary.port}"
        words = {"host": ",".join(["127.0.0.1"] * 3), "port": replica_first, "user": "postgres", "dbname": "gateway"}
        words["target_session_attrs"] = "read-write"
        with TimeoutConnection.connect(**words) as connection:
            assert connection.info.port == servers.primary.port
        assert database.order_hosts(words)["port"].startswith(f"{servers.primary.port},")
        servers.primary.kill()
        with pytest.raises(psycopg.OperationalError):
            TimeoutConnection.connect(**words)
        servers.promote()
        with TimeoutConnection.connect(**words) as connection:
            assert connection.info.port == servers.replica.port
        assert database.order_hosts(words)["port"].startswith(f"{servers.replica.port},")
    finally:
        servers.close()
