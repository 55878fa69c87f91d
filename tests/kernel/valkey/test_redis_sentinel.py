"""URLs of sentinels, and a client that follows a primary which has become a replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from redis import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from apps.kernel.store_urls import SentinelAddress, celery_options, celery_url, read_sentinel_url
from apps.kernel.valkey import redis
from apps.kernel.valkey.redis_multiplexer import RedisMultiplexer
from gateway_project.configuration import env
from tests.stack.product import eventually, free_port
from tests.support.valkey_sentinels import ValkeySentinels

pytestmark = pytest.mark.single_server
SECRET = "hunter2"


def test_a_url_says_where_the_sentinels_are_and_what_they_are_asked() -> None:
    url = f"rediss+sentinel://gateway:{SECRET}%40@one:7000,two,[::1]:7002/3?service=main&sentinel_password=other"
    told = read_sentinel_url(url)
    hosts = [("one", 7000), ("two", 26379), ("::1", 7002)]
    assert told == SentinelAddress(hosts, "main", 3, "gateway", f"{SECRET}@", "", "other", True)
    assert celery_url(told, 1) == ";".join(
        f"sentinel://gateway:{SECRET}%40@{host}/1" for host in ("one:7000", "two:26379", "[::1]:7002")
    )
    assert celery_options(told) == {"master_name": "main", "sentinel_kwargs": {"password": "other", "ssl": True}}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("one:1/0", "it needs ?service= once, with the sentinels' name of the primary"),
        ("one:1/0?service=", "it needs ?service= once, with the sentinels' name of the primary"),
        ("one:1/0?service=a&service=b", "it needs ?service= once, with the sentinels' name of the primary"),
        ("one:1/x?service=a", "its path is not a database number"),
        ("one:1/0?service=a&timeout=3", "it has an unknown parameter 'timeout'"),
        ("one:70000/0?service=a", "host 1 has no port from 1 to 65535"),
        ("one,,two/0?service=a", "host 2 is not host:port"),
        ("one/0?service=a#b", "a URL of sentinels has no fragment"),
    ],
)
def test_what_is_wrong_with_a_url_is_told_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, url: str, words: str
) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis+sentinel://:{SECRET}@{url}")
    with pytest.raises(ImproperlyConfigured) as refused:
        env.store_url("REDIS_URL", ("redis+sentinel",))
    assert str(refused.value) == f"REDIS_URL does not name sentinels: {words}"


def test_a_server_that_was_lost_more_often_than_a_pool_has_connections_is_connected_to_again() -> None:
    pool = ConnectionPool(host="127.0.0.1", port=free_port(), max_connections=3, socket_connect_timeout=0.5)
    shared = RedisMultiplexer.of_pool(pool, 0.5)
    for _ in range(5):
        with pytest.raises(RedisConnectionError) as refused:
            shared.execute("PING")
        assert "Too many connections" not in str(refused.value)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ValkeySentinels]:
    made = ValkeySentinels(tmp_path)
    yield made
    made.close()


def test_both_clients_follow_the_primary(servers: ValkeySentinels) -> None:
    plain = redis.connect(servers.url, socket_timeout=2, socket_connect_timeout=2, decode_responses=True)
    assert redis.follows_failover(plain)
    shared = RedisMultiplexer.of_pool(plain.connection_pool, 2.0, follows_failover=True)
    assert (plain.set("a", "1"), shared.execute("GET", "a")) == (True, "1")
    lost = servers.primary()
    # Demoted while it lives: open connections still reach it, and are refused there.
    _ask_a_sentinel(servers, "SENTINEL", "FAILOVER", "gateway")
    eventually(lambda: servers.has_successor(lost), patience=60)
    eventually(servers.is_whole, patience=60)
    assert shared.execute("SET", "b", "2") == "OK"
    eventually(lambda: _set(plain, "c", "3"))
    assert plain.mget("a", "b", "c") == ["1", "2", "3"]


def test_one_server_that_refuses_writes_is_not_left(servers: ValkeySentinels) -> None:
    """Without sentinels no other server takes over: each request would open a new connection for nothing."""
    replica = next(port for port in servers.servers if port != servers.primary())
    shared = RedisMultiplexer.of_pool(ConnectionPool(host="127.0.0.1", port=replica), 2.0)
    for _ in range(2):
        with pytest.raises(ResponseError, match="READONLY"):
            shared.execute("SET", "a", "1")


def _set(client: Any, name: str, value: str) -> bool:
    try:
        return bool(client.set(name, value))
    except RedisError:
        return False


def _ask_a_sentinel(servers: ValkeySentinels, *words: str) -> None:
    from redis import Redis

    with Redis(port=servers.sentinels[0], socket_timeout=2) as sentinel:
        sentinel.execute_command(*words)
