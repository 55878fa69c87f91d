"""Origin of the current request (address, user agent, request id), for the audit log, in context variables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from django.http import HttpRequest
from rest_framework.settings import api_settings

from apps.kernel.rest.request_headers import believed_address


def address_of(request: HttpRequest) -> str:
    """Return the client's address: what the outermost trusted proxy saw, or the connection's peer.

    An IPv6 address is cut to its /64, which belongs to one customer.
    """
    peer = str(request.META.get("REMOTE_ADDR", ""))
    return believed_address(peer, request.headers.get("X-Forwarded-For", ""), api_settings.NUM_PROXIES or 0)


# Characters of a User-Agent header that are stored.
MAX_USER_AGENT = 255


@dataclass(frozen=True, slots=True)
class Origin:
    """Address (as far as it can be trusted), user agent, and request id."""

    address: str = ""
    user_agent: str = ""
    request_id: str = ""


NOWHERE = Origin()
_current: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)


def current() -> Origin:
    """Return the origin of the current request; NOWHERE outside of one."""
    return _current.get()


@contextmanager
def coming_from(request: HttpRequest, request_id: str) -> Iterator[None]:
    """Serve a request as the current one."""
    agent = request.headers.get("User-Agent", "").replace("\0", "")
    token = _current.set(Origin(address_of(request), agent[:MAX_USER_AGENT], request_id))
    try:
        yield
    finally:
        _current.reset(token)
