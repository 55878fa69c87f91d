"""URLs of PostgreSQL: one server, several of which one is the primary, and lists of replicas. Pure.

Read before anything else of the product is loaded: nothing that opens sockets may be imported here.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from apps.kernel.redis_cluster_url import split_hosts, split_url

SCHEMES: Final = ("postgresql", "postgres")
MOST_REPLICAS: Final = 8
_PORT: Final = 5432
_ROLE: Final = "target_session_attrs"
# What libpq may be asked to look for: the one server that takes writes.
_WRITERS: Final = ("read-write", "primary")
# A comma within a URL stands between hosts; before another scheme it ends the URL.
_BETWEEN_URLS = re.compile(r"\s*,\s*(?=[a-z+]+://)")


class SeveralHosts(NamedTuple):
    """A URL of several hosts: the same with one in their place, the hosts and their ports as libpq lists them, and
    which of them is looked for.
    """

    url: str
    host: str
    port: str
    role: str


def names_several(url: str) -> bool:
    """Tell whether a URL lists hosts."""
    return "," in split_url(url).hosts


def read_several(url: str) -> SeveralHosts:
    """Return what a URL says that lists hosts. Raises ValueError saying what is wrong, without a secret."""
    parts = split_url(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    for name in ("host", "hostaddr", "port"):
        if name in options:
            raise ValueError(f"hosts are named before its path, not by {name}=")
    (role, *more) = options.get(_ROLE, [_WRITERS[0]])
    if more or role not in _WRITERS:
        raise ValueError(f"{_ROLE} must be {' or '.join(_WRITERS)}: others lead to servers that take no writes")
    hosts = split_hosts(parts.hosts, _PORT)
    credentials = f"{parts.credentials}@" if parts.credentials else ""
    query = f"?{parts.query}" if parts.query else ""
    return SeveralHosts(
        f"{parts.scheme}://{credentials}primary/{parts.path}{query}",
        ",".join(host for host, _ in hosts),
        ",".join(str(port) for _, port in hosts),
        role,
    )


def read_replicas(text: str) -> list[str]:
    """Return the URLs of a list of replicas, each of one server. Raises ValueError, without a secret."""
    urls = [url for url in _BETWEEN_URLS.split(text.strip()) if url]
    if len(urls) > MOST_REPLICAS:
        raise ValueError(f"at most {MOST_REPLICAS} may be named")
    for place, url in enumerate(urls, start=1):
        scheme, found, _ = url.partition("://")
        if not found or scheme not in SCHEMES:
            raise ValueError(f"URL {place} must begin with {' or '.join(f'{one}://' for one in SCHEMES)}")
        if "," in split_url(url).path:
            raise ValueError(f"URL {place} has a comma in its path: each replica is a whole URL")
        if names_several(url):
            raise ValueError(f"URL {place} lists hosts: name each replica by a URL of its own")
        if _ROLE in parse_qs(split_url(url).query):
            raise ValueError(f"URL {place} says {_ROLE}: it is looked at which of them is a replica")
        split_hosts(split_url(url).hosts or "socket", _PORT)
    return urls
