"""Reserved IP addresses and internal ports, which no URL of a tenant may lead to (SSRF). Pure.

Refused is what is not public unicast, what clouds keep for their own platforms, and where stores and internal services
listen. Knows networks and ports. Must never know a name, nor who asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

# IPv6 outside of this is not handed out: loopback, link-local, site-local, unique local, mapped IPv4, NAT64.
_GLOBAL_UNICAST_6: Final = ip_network("2000::/3")
# Protocol assignments with Teredo, documentation, 6to4.
_SPECIAL_6: Final = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
# Protocol assignments, 6to4 relays; what else is special, `is_global` knows.
_SPECIAL_4: Final = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24")))
# Where clouds answer their machines, with credentials among the rest; refused even where private addresses are allowed.
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
# Networks of IPv6 that carry an IPv4 address, and at which bit it begins.
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

# The only ones of the well-known ports that models are served at.
_WEB_PORTS: Final = frozenset({80, 443})
_FIRST_FREE_PORT: Final = 1_024
# Above these, where stores, brokers and what runs a cluster listen.
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
    """Tell whether an IP address is public unicast, and not one that a cloud keeps for its platform."""
    ip = ip_address(address)
    if is_platform(address):
        return False
    match ip:
        case IPv4Address():
            return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL_4)
        case IPv6Address():
            return ip in _GLOBAL_UNICAST_6 and not any(ip in network for network in _SPECIAL_6)


def is_platform(address: str) -> bool:
    """Tell whether an IP address is where a cloud answers its machines, however it is spelled: as IPv4, or carried in
    IPv6 (mapped, translated, 6to4, Teredo)."""
    return any(one in network for one in _meanings_of(ip_address(address)) for network in _PLATFORM)


def is_reachable_port(port: int) -> bool:
    """Tell whether models may be served at a port: 80, 443, and from 1024 on what is not known to be something else."""
    return port in _WEB_PORTS or (port >= _FIRST_FREE_PORT and port not in INTERNAL_PORTS)


def _meanings_of(ip: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """Yield an address, and each IPv4 address that it carries."""
    if isinstance(ip, IPv4Address):
        yield ip
        return
    # A zone (`%eth0`) says through which interface, not where to.
    number = int(ip)
    yield IPv6Address(number)
    for network, bit in _CARRIERS:
        if IPv6Address(number) in network:
            yield IPv4Address(number >> (96 - bit) & 0xFFFFFFFF)
    if IPv6Address(number) in _TEREDO:
        # The server as it is, the client with every bit turned.
        yield IPv4Address(number >> 64 & 0xFFFFFFFF)
        yield IPv4Address(~number & 0xFFFFFFFF)
