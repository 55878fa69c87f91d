"""The client's address behind trusted proxies (`X-Forwarded-For`). Pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network

# Characters of the longest address there is (IPv6 with a zone); longer words are none, and not worth remembering.
_LONGEST = 64


def believed_address(peer: str, forwarded_for: str, proxies: int) -> str:
    """Return what the outermost of so many trusted proxies saw (`X-Forwarded-For`), or else the connection's peer.

    An IPv6 address is cut to its /64, which is what one customer has.
    """
    hops = forwarded_for.split(",")
    written = hops[-min(proxies, len(hops))].strip() if proxies else ""
    word = written or peer
    return (_customer_of(word) if len(word) <= _LONGEST else None) or peer


# To read an address takes longer than all else that a refused request needs, and clients come again.
@lru_cache(maxsize=4096)
def _customer_of(word: str) -> str | None:
    """Return the address, or the network, that one customer has; None for what is no address."""
    try:
        address = ip_address(word)
    except ValueError:
        return None
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))
