"""Reserved IP addresses and internal ports that a tenant's URL must not reach (SSRF). Pure.

Refused are addresses that are not public unicast, cloud platform addresses, and ports of databases and internal
services.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

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
