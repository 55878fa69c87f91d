"""The client's address behind trusted proxies (`X-Forwarded-For`). Pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network

# Characters of the longest address (IPv6 with a zone); longer texts are no addresses and are not cached.
_MAX_LENGTH = 64


def believed_address(peer: str, forwarded_for: str, proxies: int) -> str:
    """Return the address that the outermost of the trusted proxies saw (`X-Forwarded-For`), or the connection's peer.

    An IPv6 address is cut to its /64, which belongs to one customer.
    """
    hops = forwarded_for.split(",")
    written = hops[-min(proxies, len(hops))].strip() if proxies else ""
    word = written or peer
    return (_customer_of(word) if len(word) <= _MAX_LENGTH else None) or peer


# Cached: parsing an address takes longer than the rest of a refused request, and clients come again.
@lru_cache(maxsize=4096)
def _customer_of(word: str) -> str | None:
    """Return the address or network of one customer; None for an invalid address."""
    try:
        address = ip_address(word)
    except ValueError:
        return None
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))
