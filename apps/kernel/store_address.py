"""Store address: where a store's URL leads, without what lets somebody in. Pure; for logs and for people."""

from __future__ import annotations

from apps.kernel.redis_cluster_url import split_hosts, split_url


def address_of(url: str) -> str:
    """Return a URL with its scheme, hosts and path alone: neither credentials nor parameters, which may hold some."""
    parts = split_url(url)
    try:
        split_hosts(parts.hosts, 1)
    except ValueError:
        # A socket's path; or what is no host may be a part of a password.
        return f"{parts.scheme}:///{parts.path}" if not parts.hosts and "@" not in parts.path else f"{parts.scheme}://…"
    return f"{parts.scheme}://{parts.hosts}" + (f"/{parts.path}" if parts.path else "")
