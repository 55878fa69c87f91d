"""SSRF guard: URLs of tenants are resolved once, checked, and called at exactly the checked address.

Only public unicast addresses pass, so that no tenant reaches our internal network or the gateway itself. Redirects are
not followed, and names are not resolved again.
"""

from __future__ import annotations

import socket
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter

from apps.kernel.concurrency.name_lookup import TENANT_NAMES, LookupsBusy, SilentName
from apps.kernel.errors import RateLimited
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.keys.reserved_addresses import is_platform, is_public, is_reachable_port

__all__ = [
    "BUSY",
    "RETRY_AFTER",
    "BusyAddressError",
    "SafeAddress",
    "SilentAddressError",
    "UnsafeAddressError",
    "check_url_field",
    "is_public",
    "resolve_safe_address",
]

# The error code for an organization that uses all of its lookups, and the seconds until it may retry.
BUSY, RETRY_AFTER = "too_many_outside_calls", 5.0
# Characters.
MAX_LENGTH = 2_000
_PORTS = {"http": 80, "https": 443}


class UnsafeAddressError(ValueError):
    """A URL that is invalid or must not be called; the message is for the person who entered it."""


class SilentAddressError(UnsafeAddressError):
    """A URL whose name servers did not answer in time."""


class BusyAddressError(UnsafeAddressError):
    """A URL that was not looked up, because its owner's unanswered lookups take all slots."""


@dataclass(frozen=True, slots=True)
class SafeAddress:
    """A URL and the one IP address at which its host may be called."""

    url: str
    host: str
    netloc: str
    ip: str

    def session(self) -> requests.Session:
        """Return a session for this host only, without proxies; the caller refuses redirects."""
        session = requests.Session()
        session.trust_env = False
        session.headers["Host"] = self.netloc
        for scheme in _PORTS:
            session.mount(f"{scheme}://", _Pinned(self))
        return session


def resolve_safe_address(url: str, owner: Hashable) -> SafeAddress:
    """Resolve the URL of a tenant within a few seconds; `owner` is the organization charged with the lookup.

    Raises UnsafeAddressError unless all of its addresses may be called.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UnsafeAddressError("Must be an http or https URL") from error
    if parts.scheme not in _PORTS or not host or len(url) > MAX_LENGTH or not (url.isascii() and url.isprintable()):
        raise UnsafeAddressError("Must be an http or https URL")
    if "@" in parts.netloc or " " in url or "\\" in url:
        raise UnsafeAddressError("Must be a URL without credentials, spaces or backslashes")
    port = port if port is not None else _PORTS[parts.scheme]
    if not is_reachable_port(port):
        raise UnsafeAddressError("Must have port 80 or 443, or one from 1024 on that is not known as a store's")
    addresses = _resolve(host, port, owner)
    if any(map(is_platform, addresses)):
        raise UnsafeAddressError("Must not lead to an address that clouds keep for their platform and its metadata")
    if not settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES and not all(map(is_public, addresses)):
        raise UnsafeAddressError("Must not lead to a private, loopback or link-local address")
    if _leads_back(host, port, addresses):
        raise UnsafeAddressError("Must not lead back to this gateway")
    return SafeAddress(url, host, parts.netloc, addresses[0])


def check_url_field(url: str, field: str, owner: Hashable) -> SafeAddress:
    """Resolve the URL in a field of a request. Raises InvalidFields for the field, and RateLimited."""
    if "#" in url:
        raise InvalidFields([Issue(field, "Must be a URL without a fragment")])
    try:
        return resolve_safe_address(url, owner)
    except BusyAddressError as error:
        raise RateLimited(f"{field}: {error}", code=BUSY, param=field, retry_after=RETRY_AFTER) from error
    except UnsafeAddressError as error:
        raise InvalidFields([Issue(field, str(error))]) from error


def _leads_back(host: str, port: int, addresses: list[str]) -> bool:
    """Return whether a URL is the gateway's own: by one of its names, or an address that it listens on."""
    public = urlsplit(settings.PUBLIC_URL)
    ports = {settings.PORT, public.port or _PORTS.get(public.scheme, 443)}
    if public.scheme == "https":
        # A TLS proxy in front of it listens on both.
        ports |= set(_PORTS.values())
    names = {(public.hostname or "").rstrip("."), *(name.strip("[]").lower() for name in settings.ALLOWED_HOSTS)}
    if port in ports and host.rstrip(".").lower() in names:
        return True
    return bool(port == settings.PORT) and any(map(_is_of_this_machine, addresses))


@lru_cache(maxsize=1_024)
def _is_of_this_machine(address: str) -> bool:
    """Return whether an IP address belongs to this machine: only those can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _resolve(host: str, port: int, owner: Hashable) -> list[str]:
    """Return every address of the host. Raises UnsafeAddressError if it has none, or the lookup takes too long."""
    try:
        found = TENANT_NAMES.find(host, port, owner)
    except LookupsBusy as error:
        raise BusyAddressError("Too many host names are being looked up; try again shortly") from error
    except SilentName as error:
        raise SilentAddressError("The name servers of its host do not answer") from error
    except (OSError, UnicodeError) as error:
        raise UnsafeAddressError("Its host is not known") from error
    return [str(address[0]) for *_, address in found]


class _Pinned(HTTPAdapter):
    """Connects to the checked address, even if the name changes; certificates are checked for the name."""

    def __init__(self, address: SafeAddress) -> None:
        super().__init__()
        self._address = address

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> tuple[Any, Any]:
        """Return the address to connect to."""
        where: dict[str, Any]
        how: dict[str, Any]
        where, how = map(dict, super().build_connection_pool_key_attributes(request, verify, cert))
        where["host"] = self._address.ip
        if where["scheme"] == "https":
            how["assert_hostname"] = how["server_hostname"] = self._address.host
        return where, how
