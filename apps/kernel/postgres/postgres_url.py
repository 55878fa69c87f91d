"""URLs of PostgreSQL: one server, several with one primary, and lists of replicas. Pure.

It is read before anything else is loaded: nothing that opens sockets may be imported here.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from apps.kernel.valkey.redis_cluster_url import split_hosts, split_url

SCHEMES: Final = ("postgresql", "postgres")
MAX_REPLICAS: Final = 8
_PORT: Final = 5432
_ROLE: Final = "target_session_attrs"
# Values of libpq's parameter that select the one server that accepts writes.
_WRITERS: Final = ("read-write", "primary")
# A comma within a URL separates hosts; before another scheme it ends the URL.
_BETWEEN_URLS = re.compile(r"\s*,\s*(?=[a-z+]+://)")


class SeveralHosts(NamedTuple):
    """A URL of several hosts: the URL with one host in their place, hosts and ports as libpq lists them, and the
    selected role.
    """

    url: str
    host: str
    port: str
    role: str


def names_several(url: str) -> bool:
    """Return whether a URL lists hosts."""
    return "," in split_url(url).hosts


def read_several(url: str) -> SeveralHosts:
    """Return the hosts in a URL. Raises ValueError with the problem, without secrets."""
    parts = split_url(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    for name in ("host", "hostaddr", "port"):
        if name in options:
            raise ValueError(f"hosts belong before its path, not in {name}=")
    (role, *more) = options.get(_ROLE, [_WRITERS[0]])
    if more or role not in _WRITERS:
        raise ValueError(f"{_ROLE} must be {' or '.join(_WRITERS)}: others select servers that do not accept writes")
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
    """Return the URLs in a list of replicas, each of one server. Raises ValueError, without secrets."""
    urls = [url for url in _BETWEEN_URLS.split(text.strip()) if url]
    if len(urls) > MAX_REPLICAS:
        raise ValueError(f"at most {MAX_REPLICAS} are allowed")
    for place, url in enumerate(urls, start=1):
        scheme, found, _ = url.partition("://")
        if not found or scheme not in SCHEMES:
            raise ValueError(f"URL {place} must begin with {' or '.join(f'{one}://' for one in SCHEMES)}")
        if "," in split_url(url).path:
            raise ValueError(f"URL {place} has a comma in its path: each replica needs a complete URL")
        if names_several(url):
            raise ValueError(f"URL {place} lists hosts: each replica needs its own URL")
        if _ROLE in parse_qs(split_url(url).query):
            raise ValueError(f"URL {place} has {_ROLE}: the gateway checks which server is a replica")
        split_hosts(split_url(url).hosts or "socket", _PORT)
    return urls
