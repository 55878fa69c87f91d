"""DNS cache: look a host name up once for all connections that ask within a few seconds.

A lookup takes a thread, and on a busy process each step of a thread waits its turn: a burst of new connections, each
with a lookup of its own, took seconds. Knows names and addresses. Must never know what is sent.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import gevent

# Seconds for which an answer stands; providers move their names within minutes.
_FRESH = 10.0
# Names whose answers are kept at a time; there are few providers, and tenants may name their own.
_MOST = 1_024

_lookups: dict[tuple[str, int], tuple[float, Any]] = {}


def connect(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connected socket, within so many seconds; a host's addresses are tried one after the other.

    Raises OSError (TimeoutError, socket.gaierror, ConnectionRefusedError).
    """
    until = time.monotonic() + timeout
    failure: OSError = OSError("the name has no address")
    for family, address in _resolve(host, port, timeout):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(until - time.monotonic(), 0.001))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    # Where nobody answers any more, the name may lead elsewhere by now.
    _lookups.pop((host, port), None)
    raise failure


def _resolve(host: str, port: int, timeout: float) -> list[tuple[int, Any]]:
    """Return a host's addresses with their families. Raises OSError."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port))]
    asked_at, lookup = _lookups.get((host, port), (0.0, None))
    if lookup is None or asked_at < time.monotonic() - _FRESH or (lookup.ready() and not lookup.successful()):
        if len(_lookups) >= _MOST:
            _lookups.clear()
        lookup = gevent.spawn(_resolve_host, host, port)
        _lookups[host, port] = time.monotonic(), lookup
    try:
        addresses: list[tuple[int, Any]] = lookup.get(timeout=timeout)
    except gevent.Timeout:
        raise TimeoutError(f"{host} was not found within {timeout:g} s") from None
    return addresses


def _resolve_host(host: str, port: int) -> list[tuple[int, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]
