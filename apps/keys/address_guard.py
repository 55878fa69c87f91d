"""Addresses that tenants give: resolved once, looked at, and called at the very address that was looked at.

Only public unicast addresses pass, so that nobody reaches the inside of our network through us. Must never follow a
redirect, nor resolve a name a second time.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter

# Characters.
MAX_LENGTH = 2_000
_PORTS = {"http": 80, "https": 443}
# IPv6 outside of this is not handed out: loopback, link-local, site-local, mapped IPv4, NAT64 and the like.
_GLOBAL_UNICAST_6 = ip_network("2000::/3")
# Protocol assignments with Teredo, documentation, 6to4.
_SPECIAL_6 = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
# Protocol assignments, 6to4 relays; what else is special, `is_global` knows.
_SPECIAL_4 = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24")))


class UnsafeAddressError(ValueError):
    """An address that is not one, or that is not to be called; the message is for whoever gave it."""


@dataclass(frozen=True, slots=True)
class SafeAddress:
    """A URL, and the one IP address at which its host may be called."""

    url: str
    host: str
    netloc: str
    ip: str

    def session(self) -> requests.Session:
        """Return a session that calls this host alone, without proxies; redirects are for the caller to refuse."""
        session = requests.Session()
        session.trust_env = False
        session.headers["Host"] = self.netloc
        for scheme in _PORTS:
            session.mount(f"{scheme}://", _Pinned(self))
        return session


def guard(url: str) -> SafeAddress:
    """Resolve the URL of a tenant. Raises UnsafeAddressError unless everything it stands for is public."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UnsafeAddressError("Must be an http or https URL") from error
    if parts.scheme not in _PORTS or not host or len(url) > MAX_LENGTH or not (url.isascii() and url.isprintable()):
        raise UnsafeAddressError("Must be an http or https URL")
    if "@" in parts.netloc or " " in url or "\\" in url:
        raise UnsafeAddressError("Must be a URL without credentials, spaces or backslashes")
    addresses = _resolve(host, port or _PORTS[parts.scheme])
    if not settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES and not all(map(is_public, addresses)):
        raise UnsafeAddressError("Must not lead to a private, loopback or link-local address")
    return SafeAddress(url, host, parts.netloc, addresses[0])


def is_public(address: str) -> bool:
    """Tell whether an IP address is public unicast."""
    ip = ip_address(address)
    match ip:
        case IPv4Address():
            return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL_4)
        case IPv6Address():
            return ip in _GLOBAL_UNICAST_6 and not any(ip in network for network in _SPECIAL_6)


def _resolve(host: str, port: int) -> list[str]:
    """Return every address of the host. Raises UnsafeAddressError when there is none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnsafeAddressError("Its host is not known") from error
    return [str(address[0]) for *_, address in found]


class _Pinned(HTTPAdapter):
    """Connects to the address that was looked at, whatever the name means by now; certificates are for the name."""

    def __init__(self, address: SafeAddress) -> None:
        super().__init__()
        self._address = address

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> tuple[Any, Any]:
        """Return where to connect to."""
        where: dict[str, Any]
        how: dict[str, Any]
        where, how = map(dict, super().build_connection_pool_key_attributes(request, verify, cert))
        where["host"] = self._address.ip
        if where["scheme"] == "https":
            how["assert_hostname"] = how["server_hostname"] = self._address.host
        return where, how
