"""Connection pool and DNS cache: HTTP/1.1 to providers over keep-alive sockets, cooperative under gevent.

The only module that opens sockets to providers. A provider's host name is looked up once for all connections that ask
within a few seconds. A lookup takes a thread, and on a busy process each step of a thread waits its turn: a burst of
new connections, each with a lookup of its own, took seconds. While the name's servers fail or are silent, its last
addresses are used.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import cache, lru_cache, partial
from select import POLLERR, POLLHUP, POLLIN
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import gevent
from gevent.event import AsyncResult
from gevent.monkey import get_original

from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.upstream.http_response import SocketWaiter, Timeouts, UpstreamResponse, network_failure
from apps.kernel.concurrency.green_socket import send_all
from apps.kernel.concurrency.name_lookup import OPERATOR_NAMES

# Idle connections kept per address, and for how many seconds: below the 60 s after which common servers close.
_POOL_SIZE = 512
_POOL_AGE = 45.0
# Addresses with kept connections, and URLs that are remembered in parts: tenants may name any number of both.
_MAX_POOLS, _MAX_URLS = 1_024, 4_096
# The end of a kept connection that comes within so many seconds of the request was on its way before: within two round
# trips to the provider, as far as the kernel knows them, and within bounds. A server that closes later may have read
# it.
_STALE_WITHIN, _STALE_WITHIN_FAR = 0.05, 0.25
# Bytes that are one record of TLS at most.
_ROUND_TRIP = struct.Struct("68xI")


# Takes when a new connection was begun, and when it was ready to send on (None where it failed), in monotonic seconds.
OnConnect = Callable[[float, float | None], object]


class PoolKey(NamedTuple):
    """Under what a connection is pooled, and where to connect: the host, or the one `ip` that was found safe for it."""

    host: str
    port: int
    tls: bool
    ip: str | None = None


class _PooledConnection:
    """A socket, what waits for it, and since when it has been idle."""

    __slots__ = ("_look", "idle_since", "reused", "sock", "waiter")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # A reader has waited until there is something.
        sock.settimeout(0.0)
        self.waiter = SocketWaiter(sock)
        self.reused = False
        self.idle_since = 0.0
        self._look = _poll()
        self._look.register(sock.fileno(), POLLIN | POLLHUP | POLLERR)

    @property
    def is_readable(self) -> bool:
        """Whether an idle connection has something to read: its end, or unsolicited bytes."""
        return bool(self._look.poll(0))

    @property
    def stale_window(self) -> float:
        """The seconds after a request within which an end of the connection was on its way before the request."""
        try:
            tcp_info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROUND_TRIP.size)
            round_trip = float(_ROUND_TRIP.unpack(tcp_info)[0]) / 1e6
        except (OSError, AttributeError, struct.error):
            round_trip = 0.0
        return min(max(_STALE_WITHIN, 2 * round_trip), _STALE_WITHIN_FAR)

    def close(self) -> None:
        """Close the socket."""
        self.waiter.close()
        self.sock.close()


# The kernel's own poll: looking whether a kept socket is still open must not switch to another greenlet.
_poll = get_original("select", "poll")


class _PoolsOfThread(get_original("_thread", "_local")):  # type: ignore[misc] # gevent has no types
    """The pools of one thread, by address: what waits for a kept connection belongs to its thread's event loop."""

    def __init__(self) -> None:
        self.by_address: dict[PoolKey, deque[_PooledConnection]] = {}


_pools = _PoolsOfThread()


@lru_cache(maxsize=_MAX_URLS)
def split_url(url: str, ip: str | None = None) -> tuple[PoolKey, str, bytes]:
    """Return the address, the path with query, and the Host header's value of a URL."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return PoolKey(host, parts.port or (443 if tls else 80), tls, ip), path, parts.netloc.rpartition("@")[2].encode()


@cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def send(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    timeouts: Timeouts,
    ip: str | None = None,
    *,
    new_connection: bool = False,
    on_connect: OnConnect | None = None,
) -> Generator[None, None, UpstreamResponse]:
    """Send a request, wait for the head of the response, and return it. Raises UpstreamFailure.

    Yields whenever nothing has come for the timeouts' `tick` seconds. Connects to `ip` where one is given, and never
    over a pooled connection where `new_connection` is set; `on_connect` gets the times of a new one. Nothing is ever
    sent twice: StaleConnection says that a pooled connection had been closed before the request arrived; the caller
    decides whether to send again.
    """
    address, path, host = split_url(url, ip)
    deadline = time.monotonic() + timeouts.total
    head = _head_of(method, path, host, headers, body)
    connection = None if new_connection else _acquire(address)
    if connection is None:
        connection = _open(address, timeouts.connect, on_connect)
    response = UpstreamResponse(connection, timeouts, deadline, partial(_release, address, connection))
    written_at: float | None = None
    try:
        _write(connection.sock, head + body, min(deadline, time.monotonic() + timeouts.first_byte))
        written_at = time.monotonic()
        yield from response.read_head()
    except UpstreamFailure as failure:
        stale = (
            failure.error_type == "network"
            and connection.reused
            and response.bytes_received == 0
            and (written_at is None or time.monotonic() - written_at <= connection.stale_window)
        )
        response.close()
        if stale:
            raise StaleConnection("network", "the kept connection had been closed") from failure
        raise
    except BaseException:
        response.close()
        raise
    return response


def _head_of(method: str, path: str, host: bytes, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the request line and headers. Raises UpstreamFailure for a value that would break out of its line."""
    lines = ""
    for name, value in headers.items():
        lines += f"{name}: {value}\r\n"
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise UpstreamFailure("client_error", "a header to the provider holds a line break", status=400)
    start = f"{method} {path} HTTP/1.1\r\n".encode("latin-1")
    rest = f"\r\nAccept-Encoding: identity\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode("latin-1", "replace")
    return start + b"Host: " + host + rest


def _write(sock: socket.socket, data: bytes, until: float) -> None:
    try:
        send_all(sock, data, max(until - time.monotonic(), 0.001))
    except TimeoutError:
        raise UpstreamFailure("timeout", "the provider did not take the request in time") from None
    except OSError as error:
        raise network_failure(error) from error


def _acquire(address: PoolKey) -> _PooledConnection | None:
    """Return a pooled connection that is still open, None where there is none."""
    pool = _pools.by_address.get(address)
    oldest = time.monotonic() - _POOL_AGE
    while pool:
        connection = pool.pop()
        if connection.idle_since >= oldest and not connection.is_readable:
            connection.reused = True
            return connection
        connection.close()
    return None


def _open(address: PoolKey, timeout: float, on_connect: OnConnect | None) -> _PooledConnection:
    """Return a new connection, and tell its times. Raises UpstreamFailure."""
    started_at = time.monotonic()
    connected_at: float | None = None
    try:
        sock = _connect(address, timeout)
        connected_at = time.monotonic()
        return _PooledConnection(sock)
    finally:
        if on_connect is not None:
            on_connect(started_at, connected_at)


def _release(address: PoolKey, connection: _PooledConnection) -> None:
    connection.idle_since = time.monotonic()
    pools = _pools.by_address
    pool = pools.get(address)
    if pool is None:
        if len(pools) >= _MAX_POOLS:
            _forget_pools(pools, connection.idle_since - _POOL_AGE)
        pool = pools[address] = deque()
    pool.append(connection)
    if len(pool) > _POOL_SIZE:
        pool.popleft().close()


def _forget_pools(pools: dict[PoolKey, deque[_PooledConnection]], oldest: float) -> None:
    """Close the pools without recent use; where all were used, the oldest one."""
    unused = [address for address, pool in pools.items() if not pool or pool[-1].idle_since < oldest]
    for address in unused or [next(iter(pools))]:
        for connection in pools.pop(address):
            connection.close()


def _connect(address: PoolKey, timeout: float) -> socket.socket:
    try:
        sock = connect(address.ip or address.host, address.port, timeout)
    except TimeoutError:
        raise UpstreamFailure("timeout", f"no connection within {timeout:g} s") from None
    except OSError as error:
        raise network_failure(error) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not address.tls:
        return sock
    try:
        return _tls_context().wrap_socket(sock, server_hostname=address.host)
    except OSError as error:
        sock.close()
        if isinstance(error, TimeoutError):
            raise UpstreamFailure("timeout", f"no secure connection within {timeout:g} s") from None
        raise network_failure(error) from error


def close_idle() -> None:
    """Close every connection that this thread keeps."""
    for pool in _pools.by_address.values():
        while pool:
            with contextlib.suppress(OSError):
                pool.pop().close()


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
