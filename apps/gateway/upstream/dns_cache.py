"""DNS cache: look a provider's host name up once for all connections that ask within a few seconds.

A lookup takes a thread, and on a busy process each step of a thread waits its turn: a burst of new connections, each
with a lookup of its own, took seconds. While the name's servers fail or are silent, its last addresses are used.
"""

from __future__ import annotations

import socket
import time
from typing import Any, cast

import gevent
from gevent.event import AsyncResult

from apps.kernel.concurrency.name_lookup import OPERATOR_NAMES

# Seconds for which an answer stands; providers move their names within minutes.
_FRESH = 10.0
# Seconds for which the last answer is used while there is no newer one, and that a newer one is waited for then.
_STALE, _STALE_AFTER = 3_600.0, 1.0
# Names whose answers are kept at a time; there are few providers, and tenants may name their own.
_MAX_NAMES = 1_024

_Place = tuple[str, int]
_Addresses = list[tuple[int, Any]]
# When each name was last asked for, and the lookup; when it last had an answer, and which.
_lookups: dict[_Place, tuple[float, AsyncResult[_Addresses]]] = {}
_answers: dict[_Place, tuple[float, _Addresses]] = {}


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
    # Where no server answers any more, the name may have another address by now.
    asked = _lookups.get((host, port))
    if asked is not None and asked[1].ready():
        _lookups.pop((host, port), None)
    raise failure


def _resolve(host: str, port: int, timeout: float) -> _Addresses:
    """Return a host's addresses with their families. Raises OSError."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port))]
    if not gevent.get_hub().main_hub:
        # A thread beside the event loop may block, and may end before a lookup that greenlets wait for.
        return _ask(host, port)
    lookup = _look_up(host, port)
    answered_at, known = _answers.get((host, port), (0.0, None))
    if known is not None and answered_at < time.monotonic() - _STALE:
        known = None
    lookup.wait(timeout if known is None else min(timeout, _STALE_AFTER))
    if known is not None and not lookup.successful():
        return known
    if not lookup.ready():
        raise TimeoutError(f"{host} was not found within {timeout:g} s")
    return cast(_Addresses, lookup.get())


def _look_up(host: str, port: int) -> AsyncResult[_Addresses]:
    """Return the lookup of a name that is under way or still stands, else one that begins now."""
    asked_at, lookup = _lookups.get((host, port), (0.0, None))
    if lookup is not None and not lookup.ready():
        # A thread is at it, however long: another would wait for the same servers.
        return lookup
    if lookup is None or asked_at < time.monotonic() - _FRESH or not lookup.successful():
        if len(_lookups) >= _MAX_NAMES:
            _lookups.clear()
        if len(_answers) >= _MAX_NAMES:
            _answers.clear()
        lookup = AsyncResult()
        _lookups[host, port] = time.monotonic(), lookup
        gevent.spawn(_find, host, port, lookup)
    return lookup


def _find(host: str, port: int, lookup: AsyncResult[_Addresses]) -> None:
    try:
        found = _ask(host, port)
    except (OSError, UnicodeError) as error:
        # Raised in a greenlet, it would be printed.
        lookup.set_exception(error if isinstance(error, OSError) else OSError(str(error)))
    else:
        _answers[host, port] = time.monotonic(), found
        lookup.set(found)


def _ask(host: str, port: int) -> _Addresses:
    return [(family, address) for family, _, _, _, address in OPERATOR_NAMES.find(host, port)]
