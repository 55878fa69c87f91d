"""Store address: a store's URL without credentials. Pure; for logs and messages."""

from __future__ import annotations

from apps.kernel.valkey.redis_cluster_url import split_hosts, split_url


def address_of(url: str) -> str:
    """Return a URL with its scheme, hosts and path only: credentials and parameters may be secret."""
    parts = split_url(url)
    try:
        split_hosts(parts.hosts, 1)
    except ValueError:
        # The path of a socket; an invalid host may be a part of a password.
        return f"{parts.scheme}:///{parts.path}" if not parts.hosts and "@" not in parts.path else f"{parts.scheme}://…"
    return f"{parts.scheme}://{parts.hosts}" + (f"/{parts.path}" if parts.path else "")
