"""SSRF guard: URLs of tenants are resolved once, checked, and called at exactly the checked address.

Only public unicast addresses pass, without those of cloud platforms and the ports of databases and internal services,
so that no tenant reaches our internal network or the gateway itself. Redirects are
not followed, and names are not resolved again.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from django.conf import settings
from requests.adapters import DEFAULT_CA_BUNDLE_PATH, HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from apps.kernel.concurrency.name_lookup import TENANT_NAMES, LookupsBusy, SilentName
from apps.kernel.errors import RateLimited
from apps.kernel.rest.envelopes import InvalidFields, Issue

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


@cache
def _trusted_roots() -> ssl.SSLContext:
    """Return the context for connections with TLS, shared by all of them.

    Reading some 140 root certificates takes 20 to 30 ms of CPU, and requests reads them again for each connection.
    """
    context = create_urllib3_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    return context


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
            how["ssl_context"] = _trusted_roots()
        return where, how

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Have the certificate checked against the shared roots: there is no way to call without."""
        conn.cert_reqs = "CERT_REQUIRED"


# Other IPv6 addresses are not public: loopback, link-local, site-local, unique local, mapped IPv4, NAT64.
_GLOBAL_UNICAST_6: Final = ip_network("2000::/3")
# Protocol assignments with Teredo, documentation, 6to4.
_SPECIAL_6: Final = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
# Protocol assignments, 6to4 relays; `is_global` knows the other special ranges.
_SPECIAL_4: Final = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24")))
# Cloud metadata services, which hand out credentials; refused even if private addresses are allowed.
_PLATFORM: Final = tuple(
    map(
        ip_network,
        (
            "169.254.0.0/16",  # Link-local: metadata at 169.254.169.254, of containers at 169.254.170.2.
            "168.63.129.16/32",  # Azure's platform, a public address.
            "100.100.100.200/32",  # Alibaba's metadata.
            "192.0.0.192/32",  # Oracle's metadata.
            "161.26.0.0/16",  # IBM's services, public addresses that are reached from its cloud alone.
            "166.8.0.0/14",
            "fe80::/10",
            "fd00:ec2::/32",  # Amazon's metadata and its kin.
            "fd20:ce::/32",  # Google's.
        ),
    )
)
# IPv6 networks that embed an IPv4 address, and the bit at which it starts.
_CARRIERS: Final = tuple(
    (IPv6Network(network), bit)
    for network, bit in (
        ("::/96", 96),
        ("::ffff:0:0/96", 96),
        ("::ffff:0:0:0/96", 96),
        ("64:ff9b::/96", 96),
        ("64:ff9b:1::/48", 96),
        ("2002::/16", 16),
    )
)
_TEREDO: Final = ip_network("2001::/32")

# The only well-known ports that serve models.
_WEB_PORTS: Final = frozenset({80, 443})
_FIRST_FREE_PORT: Final = 1_024
# Higher ports of databases, brokers and cluster components.
INTERNAL_PORTS: Final = frozenset(
    {
        *(1433, 1521, 3306, 5432, 5433, 6432, 50_000),  # SQL Server, Oracle, MySQL, PostgreSQL, PgBouncer, Db2
        *(6379, 6380, 16_379, 26_379, 11_211),  # Redis, Valkey, Sentinel, memcached
        *(
            27_017,
            27_018,
            27_019,
            5984,
            9042,
            9160,
            7000,
            7001,
            7199,
            7687,
            28_015,
        ),  # MongoDB, Cassandra, Neo4j
        *(9200, 9300, 8086, 9009),  # Elasticsearch, InfluxDB, ClickHouse between its servers
        *(4369, 5671, 5672, 25_672, 15_672, 9092, 9093, 61_613, 61_616, 4222),  # RabbitMQ, Kafka, ActiveMQ, NATS
        *(2181, 2379, 2380, 8200, 8300, 8301, 8302, 8500, 8501, 8600),  # ZooKeeper, etcd, Vault, Consul
        *(2375, 2376, 2377, 6443, 10_250, 10_255, 10_256, 10_257, 10_259),  # Docker, Kubernetes
        *(2049, 3260, 3389, 5900, 5985, 5986, 6000, 873),  # NFS, iSCSI, remote desktops, WinRM, X11
    }
)


def is_public(address: str) -> bool:
    """Return whether an IP address is public unicast and not a cloud platform's."""
    ip = ip_address(address)
    if is_platform(address):
        return False
    match ip:
        case IPv4Address():
            return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL_4)
        case IPv6Address():
            return ip in _GLOBAL_UNICAST_6 and not any(ip in network for network in _SPECIAL_6)


def is_platform(address: str) -> bool:
    """Return whether an IP address is a cloud's platform address in any spelling: as IPv4, or embedded in IPv6 (mapped,
    translated, 6to4, Teredo)."""
    return any(one in network for one in _meanings_of(ip_address(address)) for network in _PLATFORM)


def is_reachable_port(port: int) -> bool:
    """Return whether models may be served at a port: 80, 443, and ports from 1024 that no known service uses."""
    return port in _WEB_PORTS or (port >= _FIRST_FREE_PORT and port not in INTERNAL_PORTS)


def _meanings_of(ip: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """Yield an address, and each IPv4 address that it embeds."""
    if isinstance(ip, IPv4Address):
        yield ip
        return
    # A zone (`%eth0`) names the interface, not the target.
    number = int(ip)
    yield IPv6Address(number)
    for network, bit in _CARRIERS:
        if IPv6Address(number) in network:
            yield IPv4Address(number >> (96 - bit) & 0xFFFFFFFF)
    if IPv6Address(number) in _TEREDO:
        # The server is stored plainly, the client with inverted bits.
        yield IPv4Address(number >> 64 & 0xFFFFFFFF)
        yield IPv4Address(~number & 0xFFFFFFFF)
