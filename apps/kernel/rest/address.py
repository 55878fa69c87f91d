"""Where a request comes from, as far as that can be believed.

Knows how many proxies stand in front (`NUM_PROXIES` of the REST framework's settings). Must never know what an address
is asked for.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from django.http import HttpRequest
from rest_framework.settings import api_settings


def address_of(request: HttpRequest) -> str:
    """Return the client's address: what the outermost trusted proxy saw, or else the peer of the connection.

    An IPv6 address is cut to its /64, which is what one customer has.
    """
    trusted = api_settings.NUM_PROXIES or 0
    hops = request.headers.get("X-Forwarded-For", "").split(",")
    peer = str(request.META.get("REMOTE_ADDR", ""))
    written = hops[-min(trusted, len(hops))].strip() if trusted else ""
    try:
        address = ip_address(written or peer)
    except ValueError:
        return peer
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))
