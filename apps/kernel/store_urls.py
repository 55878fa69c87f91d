"""URLs of the stores: PostgreSQL with several hosts and replicas, a Valkey cluster, a primary behind sentinels. Pure.

`redis+cluster://user:password@host:port,host:port` names a cluster, `redis+sentinel://…/0?service=name` a primary
behind sentinels; `rediss+…` is the same over TLS. It is read before anything else is loaded: nothing that opens sockets
may be imported here.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote

CLUSTER_SCHEMES: Final = ("redis+cluster", "rediss+cluster")
# Addresses in one URL: any of them can list the others.
MAX_HOSTS: Final = 64
_VALKEY_PORT: Final = 6379


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
    return url.partition("://")[0] in CLUSTER_SCHEMES


def read_hosts(url: str) -> list[tuple[str, int]]:
    """Return the addresses in a cluster's URL. Raises ValueError with the problem, without secrets."""
    parts = split_url(url)
    if parts.path not in ("", "0"):
        raise ValueError("a cluster has no databases: leave the path out")
    if parts.fragment:
        raise ValueError("a URL of a cluster has no fragment")
    return split_hosts(parts.hosts, _VALKEY_PORT)


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


SENTINEL_SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
_SENTINEL_PORT: Final = 26379
# Parameters: the primary's name among the sentinels, and the credentials for the sentinels themselves.
_SERVICE, _USER, _PASSWORD = "service", "sentinel_username", "sentinel_password"


class SentinelAddress(NamedTuple):
    """Addresses of sentinels, and credentials for them and the primary; empty ones are none."""

    hosts: list[tuple[str, int]]
    service: str
    database: int
    username: str
    password: str
    sentinel_username: str
    sentinel_password: str
    tls: bool


def is_sentinel_url(url: str) -> bool:
    """Return whether a URL names sentinels."""
    return url.partition("://")[0] in SENTINEL_SCHEMES


def read_sentinel_url(url: str) -> SentinelAddress:
    """Return the address in a URL. Raises ValueError with the problem, without secrets."""
    parts = split_url(url)
    if parts.fragment:
        raise ValueError("a URL of sentinels has no fragment")
    database = parts.path.strip("/") or "0"
    if not (database.isascii() and database.isdigit() and len(database) <= 4):
        raise ValueError("its path is not a database number")
    options = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(options.keys() - {_SERVICE, _USER, _PASSWORD}):
        raise ValueError(f"it has an unknown parameter {unknown[0][:40]!r}")
    if any(len(values) > 1 for values in options.values()) or not options.get(_SERVICE, [""])[0]:
        raise ValueError("it needs ?service= once, with the sentinels' name of the primary")
    return SentinelAddress(
        hosts=split_hosts(parts.hosts, _SENTINEL_PORT),
        service=options[_SERVICE][0],
        database=int(database),
        username=unquote(parts.credentials.partition(":")[0]),
        password=unquote(parts.password),
        sentinel_username=options.get(_USER, [""])[0],
        sentinel_password=options.get(_PASSWORD, [""])[0],
        tls=parts.scheme == "rediss+sentinel",
    )


def celery_url(address: SentinelAddress, database: int) -> str:
    """Return Celery's URL for another database of the same primary."""
    credentials = f"{quote(address.username, '')}:{quote(address.password, '')}@" if address.password else ""
    return ";".join(
        f"sentinel://{credentials}{f'[{host}]' if ':' in host else host}:{port}/{database}"
        for host, port in address.hosts
    )


def celery_options(address: SentinelAddress) -> dict[str, object]:
    """Return the transport options of Celery for that URL."""
    return {"master_name": address.service, "sentinel_kwargs": sentinel_credentials(address)}


def sentinel_credentials(address: SentinelAddress) -> dict[str, object]:
    """Return the credentials for the sentinels themselves, as the client library names them."""
    words: dict[str, object] = {}
    if address.sentinel_username:
        words["username"] = address.sentinel_username
    if address.sentinel_password:
        words["password"] = address.sentinel_password
    if address.tls:
        words["ssl"] = True
    return words


def address_of(url: str) -> str:
    """Return a URL with its scheme, hosts and path only: credentials and parameters may be secret."""
    parts = split_url(url)
    try:
        split_hosts(parts.hosts, 1)
    except ValueError:
        # The path of a socket; an invalid host may be a part of a password.
        return f"{parts.scheme}:///{parts.path}" if not parts.hosts and "@" not in parts.path else f"{parts.scheme}://…"
    return f"{parts.scheme}://{parts.hosts}" + (f"/{parts.path}" if parts.path else "")


POSTGRES_SCHEMES: Final = ("postgresql", "postgres")
MAX_REPLICAS: Final = 8
_POSTGRES_PORT: Final = 5432
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
    hosts = split_hosts(parts.hosts, _POSTGRES_PORT)
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
        if not found or scheme not in POSTGRES_SCHEMES:
            raise ValueError(f"URL {place} must begin with {' or '.join(f'{one}://' for one in POSTGRES_SCHEMES)}")
        if "," in split_url(url).path:
            raise ValueError(f"URL {place} has a comma in its path: each replica needs a complete URL")
        if names_several(url):
            raise ValueError(f"URL {place} lists hosts: each replica needs its own URL")
        if _ROLE in parse_qs(split_url(url).query):
            raise ValueError(f"URL {place} has {_ROLE}: the gateway checks which server is a replica")
        split_hosts(split_url(url).hosts or "socket", _POSTGRES_PORT)
    return urls
