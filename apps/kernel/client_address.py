"""The client's address behind trusted proxies (`X-Forwarded-For`). Pure."""

from __future__ import annotations

from ipaddress import ip_address, ip_network


def believed_address(peer: str, forwarded_for: str, proxies: int) -> str:
    """Return what the outermost of so many trusted proxies saw (`X-Forwarded-For`), or else the connection's peer.

    An IPv6 address is cut to its /64, which is what one customer has.
    """
    hops = forwarded_for.split(",")
    written = hops[-min(proxies, len(hops))].strip() if proxies else ""
    try:
        address = ip_address(written or peer)
    except ValueError:
        return peer
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))
