"""Passwords in the URLs of stores: whether a store over a network has one that cannot be guessed. Pure.

A store on this machine (a unix socket, `localhost`, a loopback address) may have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs, unquote

from apps.kernel.store_urls import split_hosts, split_url

# Default passwords of images and packages, and the first guesses of attackers.
_DEFAULTS: Final = {
    *("postgres", "postgresql", "redis", "valkey", "clickhouse", "gateway", "model-gateway", "guest", "test"),
    *("password", "passw0rd", "pass", "secret", "changeme", "change-me", "change_me", "example", "default"),
    *("admin", "root", "123456", "12345678"),
}
# By these a URL, or the environment, brings another proof than a password.
_OF_POSTGRES: Final = frozenset({"sslcert", "passfile", "krbsrvname"})
_OF_REDIS: Final = frozenset({"ssl_certfile"})
_POSTGRES_VARIABLES: Final = ("PGPASSWORD", "PGPASSFILE", "PGSSLCERT", "PGSERVICE")
# Used for a URL without a port; its value does not matter here.
_ANY_PORT: Final = 1


def is_local(host: str) -> bool:
    """Tell whether a host, as a URL has it, is this machine; none is a unix socket."""
    if host in {"", "localhost"} or host.startswith(("/", "%2F", "%2f")):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def fault_of(url: str, environment: Mapping[str, str]) -> str | None:
    """Return what is wrong with the password in a store's URL, without repeating it; None if it is fine."""
    parts = split_url(url)
    if not url or "unix" in parts.scheme or parts.scheme in {"redis+socket", "memory"}:
        return None
    options = parse_qs(parts.query)
    try:
        # One host of a pool that is on a network is enough; PostgreSQL's hosts may be in the query.
        hosts = [host for host, _ in split_hosts(parts.hosts, _ANY_PORT)] if parts.hosts else options.get("host", [""])
    except ValueError:
        return None
    if all(map(is_local, hosts)):
        return None
    user, _, password = parts.credentials.partition(":")
    user, password = unquote(user), unquote(password) or options.get("password", [""])[0]
    if not password:
        if parts.scheme.startswith("postgres"):
            is_proven = _OF_POSTGRES & options.keys() or any(environment.get(one) for one in _POSTGRES_VARIABLES)
        else:
            is_proven = _OF_REDIS & options.keys()
        return None if is_proven else "leads over a network and has no password"
    if password.lower() in _DEFAULTS or password == user:
        return "leads over a network and has a password that is tried first"
    return None
