"""The client's address of a Django request, behind `NUM_PROXIES` trusted proxies."""

from __future__ import annotations

from django.http import HttpRequest
from rest_framework.settings import api_settings

from apps.kernel.client_address import believed_address


def address_of(request: HttpRequest) -> str:
    """Return the client's address: what the outermost trusted proxy saw, or the connection's peer.

    An IPv6 address is cut to its /64, which belongs to one customer.
    """
    peer = str(request.META.get("REMOTE_ADDR", ""))
    return believed_address(peer, request.headers.get("X-Forwarded-For", ""), api_settings.NUM_PROXIES or 0)
