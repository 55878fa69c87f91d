"""URLs of a Valkey Cluster: `redis+cluster://user:password@host:port,host:port`, `rediss+cluster://` over TLS. Pure.

It is read before anything else is loaded: nothing that opens sockets may be imported here.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import SplitResult

SCHEMES: Final = ("redis+cluster", "rediss+cluster")
# Addresses in one URL: any of them can list the others.
MAX_HOSTS: Final = 64
_PORT: Final = 6379


class UrlParts(NamedTuple):
    """The parts of a URL with several hosts, undecoded; missing ones are empty."""

    scheme: str
    credentials: str
    hosts: str
    path: str
    query: str
    fragment: str

    @property
    def password(self) -> str:
        """The password, as written."""
        return self.credentials.partition(":")[2]


def split_url(url: str) -> UrlParts:
    """Return the parts of a URL. `urlsplit` supports only one host."""
    scheme, _, rest = url.partition("://")
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, _, hosts = authority.rpartition("@")
    return UrlParts(scheme, credentials, hosts, path, query, fragment)


def is_cluster_url(url: str) -> bool:
    """Return whether a URL names a cluster."""
    return url.partition("://")[0] in SCHEMES


def read_hosts(url: str) -> list[tuple[str, int]]:
    """Return the addresses in a cluster's URL. Raises ValueError with the problem, without secrets."""
    parts = split_url(url)
    if parts.path not in ("", "0"):
        raise ValueError("a cluster has no databases: leave the path out")
    if parts.fragment:
        raise ValueError("a URL of a cluster has no fragment")
    return split_hosts(parts.hosts, _PORT)


def split_hosts(hosts: str, usual_port: int) -> list[tuple[str, int]]:
    """Return the addresses in a list of hosts. Raises ValueError."""
    texts = hosts.split(",")
    if len(texts) > MAX_HOSTS:
        raise ValueError(f"at most {MAX_HOSTS} hosts are allowed")
    return [_read_host(text.strip(), place, usual_port) for place, text in enumerate(texts, start=1)]


def _read_host(text: str, place: int, usual_port: int) -> tuple[str, int]:
    one = SplitResult("", text, "", "", "")
    try:
        host, port = one.hostname, one.port
    except ValueError as error:
        raise ValueError(f"host {place} has no port from 1 to 65535") from error
    if not host or port == 0:
        raise ValueError(f"host {place} is not host:port")
    return host, port or usual_port
