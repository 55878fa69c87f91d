"""Pinned IP address: call a tenant's own provider at the address that the guard checked, without a second DNS lookup.

Defeats DNS rebinding. An address that `keys/ssrf_guard.py` refuses never passes.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit
from uuid import UUID

from apps.gateway.failures import UpstreamFailure
from apps.keys.ssrf_guard import BusyAddressError, SilentAddressError, UnsafeAddressError, resolve_safe_address

# Seconds for which a name that was looked up keeps its address, and how many are remembered.
_MAX_AGE, _MAX_NAMES = 30.0, 10_000
# Seconds for which it keeps it while it cannot be looked up again: a checked address stays checked.
_MAX_STALE = 600.0
_pinned: dict[str, tuple[float, str]] = {}


def pinned_ip(url: str, owner: UUID | None) -> str:
    """Return the one address at which the URL's host may be called now; `owner` is the organization whose provider it
    is. Raises UpstreamFailure."""
    parts = urlsplit(url)
    url = f"{parts.scheme}://{parts.netloc}"
    found = _pinned.get(url)
    if found is not None and time.monotonic() - found[0] < _MAX_AGE:
        return found[1]
    try:
        address = resolve_safe_address(url, owner)
    except (BusyAddressError, SilentAddressError) as error:
        if found is not None and time.monotonic() - found[0] < _MAX_STALE:
            return found[1]
        raise UpstreamFailure("network", f"its address cannot be called: {error}") from error
    except UnsafeAddressError as error:
        _pinned.pop(url, None)
        raise UpstreamFailure("network", f"its address cannot be called: {error}") from error
    if len(_pinned) >= _MAX_NAMES:
        _pinned.clear()
    _pinned[url] = (time.monotonic(), address.ip)
    return address.ip


def forget_all() -> None:
    """Forget all names, so that each is looked up again."""
    _pinned.clear()
