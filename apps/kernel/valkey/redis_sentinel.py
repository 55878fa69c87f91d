"""Client of the primary that sentinels name: each new connection asks them, so it follows a failover."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any

from redis import Redis
from redis.sentinel import Sentinel, SentinelConnectionPool

from apps.kernel.valkey.redis_sentinel_url import read_sentinel_url, sentinel_credentials


def connect(url: str, **options: Any) -> Redis:
    """Return a client of the primary, without connecting yet. Its commands raise RedisError, also without a primary."""
    address = read_sentinel_url(url)
    timeouts = {name: value for name, value in options.items() if name in {"socket_timeout", "socket_connect_timeout"}}
    own: dict[str, Any] = {"db": address.database, **options}
    if address.username:
        own["username"] = address.username
    if address.password:
        own["password"] = address.password
    if address.tls:
        own["ssl"] = True
    sentinels: Any = Sentinel(  # type: ignore[no-untyped-call] # the library's
        address.hosts, sentinel_kwargs={**timeouts, "decode_responses": True, **sentinel_credentials(address)}
    )
    primary: Redis = sentinels.master_for(address.service, **own)
    return primary


def follows_failover(client: Redis) -> bool:
    """Return whether another server may be the primary on the client's next connection."""
    return isinstance(client.connection_pool, SentinelConnectionPool)


class SentinelConnectionFactory:
    """Creates django-redis' clients: one per process and purpose, although its cache asks in every thread."""

    _clients: dict[tuple[str, bool], Redis] = {}
    _lock = Lock()

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = dict(options.get("CONNECTION_POOL_KWARGS", {}))

    def connect(self, url: str) -> Redis:
        """Return the client, without connecting yet."""
        name = url, bool(self._options.get("decode_responses"))
        with self._lock:
            if name not in self._clients:
                self._clients[name] = connect(url, **self._options)
            return self._clients[name]

    def disconnect(self, connection: Redis) -> None:
        """Close the connections; they are reopened on use."""
        connection.connection_pool.disconnect()

    @classmethod
    def begin_anew(cls) -> None:
        """Reset in a forked child."""
        cls._clients.clear()
        cls._lock = Lock()


os.register_at_fork(after_in_child=SentinelConnectionFactory.begin_anew)
