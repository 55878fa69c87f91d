"""Name lookups on native threads: the operator's names on one pool, tenants' on another with a limit per owner.

The C library does the lookup, so that /etc/hosts, nsswitch, search domains and service names of containers work as in
every other program (docs/adr/0235). It cannot be interrupted: a thread stays busy until the library gives up on a name
with unresponsive servers, even if its caller has left. So each tenant's share of the threads is limited, and a name
that did not answer is refused for some seconds.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, cast

import gevent
from gevent.event import AsyncResult
from gevent.monkey import get_original

from apps.kernel.concurrency.fairness import OwnerSlots
from apps.kernel.concurrency.native_thread_pool import NativeThreadPool
from apps.kernel.errors import Overloaded

# Threads for the operator's names, which are few and come from the catalog; and for all tenants' names together.
OPERATOR_THREADS: Final = 8
TENANT_THREADS: Final = 64
# Concurrent lookups for one tenant in one process.
TENANT_SHARE: Final = 4
# Timeout of a tenant's lookup in seconds, with its wait for a thread; also how long a silent name is refused.
TENANT_PATIENCE: Final = 5.0
SILENCE_KEPT: Final = 10.0
# Maximum remembered silent names.
_MAX_SILENT: Final = 10_000

# Family, type, protocol, canonical name, and the socket's address.
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]

# The original function: gevent's runs on the hub's pool with all other work.
_getaddrinfo: Callable[..., list[AddressInfo]] = get_original("socket", "getaddrinfo")
_parse: Callable[..., list[AddressInfo]] = _getaddrinfo


class SilentName(OSError):
    """The servers of a name did not answer in time."""


class LookupsBusy(OSError):
    """The owner, or all tenants together, have reached the limit of concurrent lookups."""


def find_numeric(host: str, port: int) -> list[AddressInfo]:
    """Return the addresses of a host in any numeric notation; empty for a name. Makes no lookup."""
    try:
        return _parse(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []


class OperatorLookups:
    """Lookups of names from the operator or the catalog. They never wait for a tenant's."""

    def __init__(self, threads: int = OPERATOR_THREADS) -> None:
        self._pool = NativeThreadPool(threads, awaited=False)

    def find(self, host: str, port: int) -> list[AddressInfo]:
        """Return a host's addresses. Raises OSError."""
        return self._pool.run(partial(_ask, host, port))


class TenantLookups:
    """Lookups of tenants' names: a few at a time for each owner, one at a time for each name."""

    def __init__(self, threads: int = TENANT_THREADS, share: int = TENANT_SHARE) -> None:
        self._pool = NativeThreadPool(threads, awaited=False)
        self._slots = OwnerSlots(share)
        self._under_way: dict[str, _Lookup] = {}
        self._silent_until: dict[str, float] = {}

    def find(self, host: str, port: int, owner: Hashable, patience: float = TENANT_PATIENCE) -> list[AddressInfo]:
        """Return a host's addresses, within `patience` seconds. `owner` is the organization that gave the name.

        Raises OSError: SilentName if the name did not answer in time, now or recently; LookupsBusy; and UnicodeError
        for an invalid name. Outside of the event loop's thread, it takes as long as the library does.
        """
        if found := find_numeric(host, port):
            return found
        if not gevent.get_hub().main_hub:
            return _ask(host, port)
        until = time.monotonic() + patience
        if self._silent_until.get(host, 0.0) > time.monotonic():
            raise SilentName(host)
        lookup = self._under_way.get(host) or self._begin(host, port, owner, patience)
        lookup.outcome.wait(timeout=max(until - time.monotonic(), 0.0))
        if not lookup.outcome.ready():
            if not lookup.is_asking:
                raise LookupsBusy(host)
            self._remember_silence(host)
            raise SilentName(host)
        try:
            return cast(list[AddressInfo], lookup.outcome.get())
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                self._remember_silence(host)
                raise SilentName(host) from error
            raise

    def _begin(self, host: str, port: int, owner: Hashable, patience: float) -> _Lookup:
        """Return the lookup of a name, started now unless one is running. Raises LookupsBusy."""
        if not self._slots.acquire(owner, patience):
            raise LookupsBusy(host)
        if (other := self._under_way.get(host)) is not None:
            self._slots.release(owner)
            return other
        lookup = self._under_way[host] = _Lookup()
        # The lookup continues after its caller has left, because the thread does.
        gevent.spawn(self._look_up, lookup, host, port, owner, patience)
        return lookup

    def _look_up(self, lookup: _Lookup, host: str, port: int, owner: Hashable, patience: float) -> None:
        try:
            lookup.outcome.set(self._pool.run(partial(lookup.ask, host, port), patience=patience))
            self._silent_until.pop(host, None)
        except Overloaded:
            lookup.outcome.set_exception(LookupsBusy(host))
        except (OSError, UnicodeError) as error:
            lookup.outcome.set_exception(error)
        finally:
            del self._under_way[host]
            self._slots.release(owner)

    def _remember_silence(self, host: str) -> None:
        if len(self._silent_until) >= _MAX_SILENT:
            self._silent_until.clear()
        self._silent_until[host] = time.monotonic() + SILENCE_KEPT


class _Lookup:
    """A running lookup, shared by all who wait for it."""

    def __init__(self) -> None:
        self.outcome: AsyncResult[list[AddressInfo]] = AsyncResult()
        # Whether a thread has started; before that the name is not to blame.
        self.is_asking = False

    def ask(self, host: str, port: int) -> list[AddressInfo]:
        self.is_asking = True
        return _ask(host, port)


def _ask(host: str, port: int) -> list[AddressInfo]:
    return _getaddrinfo(host, port, type=socket.SOCK_STREAM)


OPERATOR_NAMES: Final = OperatorLookups()
TENANT_NAMES: Final = TenantLookups()
