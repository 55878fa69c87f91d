"""Redis settings: Django's description of a client of the store at a URL. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from apps.kernel.store_urls import is_cluster_url, is_sentinel_url


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
