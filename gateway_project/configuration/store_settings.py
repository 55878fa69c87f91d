"""Store settings: Django's description of the primary, of its read replicas and of Redis caches, from their URLs.

Does not read the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.kernel.store_urls import is_cluster_url, is_sentinel_url
from gateway_project.configuration import env

_NONE_RUNNING = "postgresql://postgres@no-database-is-running/gateway"


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The connections of one process: at most `pool_size` to each database, 0 for one a request; `connect_timeout` is
    in seconds. Without a URL, as where no store runs yet, nothing can be reached."""

    url: str
    replica_urls: Sequence[str]
    pool_size: int
    connect_timeout: int

    @property
    def replica_aliases(self) -> list[str]:
        """The names of the replicas' connections."""
        return [f"replica_{number}" for number, _ in enumerate(self.replica_urls, 1)]

    def databases(self) -> dict[str, dict[str, Any]]:
        """Return Django's DATABASES. One connection to the primary is kept open, and none to a replica."""
        replicas = zip(self.replica_aliases, self.replica_urls, strict=True)
        return {
            "default": self._describe(self.url or _NONE_RUNNING, fewest=1),
            **{alias: {**self._describe(url, fewest=0), "TEST": {"MIRROR": "default"}} for alias, url in replicas},
        }

    def _describe(self, url: str, *, fewest: int) -> dict[str, Any]:
        words = env.database(url)
        options = {
            **words.get("OPTIONS", {}),
            "connect_timeout": self.connect_timeout,
            # A server that has vanished from the network is detected within half a minute.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        }
        if self.pool_size and self.url:
            # A failed connection is not retried in the background: the next query tries again.
            options["pool"] = {"min_size": fewest, "max_size": self.pool_size, "timeout": 10, "reconnect_timeout": 2}
        return {
            **words,
            "ENGINE": "gateway_project.postgresql",
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": True,
            # PgBouncer may carry out the next statement on another connection, where there is no such cursor.
            "DISABLE_SERVER_SIDE_CURSORS": True,
            "OPTIONS": options,
        }


def django_redis_cache(url: str, connection: Mapping[str, object]) -> dict[str, object]:
    """Return the entry of CACHES for a store; `connection` has the options of its connections."""
    options: dict[str, object] = {"CONNECTION_POOL_KWARGS": dict(connection)}
    # A list, for a URL may have commas that do not part it from another.
    location: object = [url] if url else "redis://no-redis-is-running:6379/0"
    if is_cluster_url(url):
        options["CONNECTION_FACTORY"] = "apps.kernel.valkey.redis_cluster.ClusterConnectionFactory"
    elif is_sentinel_url(url):
        options["CONNECTION_FACTORY"] = "apps.kernel.valkey.redis.SentinelConnectionFactory"
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options}
