"""URLs of a primary behind sentinels, as `redis+sentinel://user:password@host:port,host:port/0?service=name`. Pure.

`rediss+sentinel://` is the same over TLS. It is read before anything else is loaded: nothing that opens sockets may be
imported here.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qs, quote, unquote

from apps.kernel.valkey.redis_cluster_url import split_hosts, split_url

SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
_PORT: Final = 26379
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
    return url.partition("://")[0] in SCHEMES


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
        hosts=split_hosts(parts.hosts, _PORT),
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
