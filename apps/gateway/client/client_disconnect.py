"""Client disconnect: notice a client that hangs up, and end every wait on its behalf.

Covers every phase: before the first byte, between chunks, and plain requests. Polls the clients' sockets while the
gateway waits for providers; the exception that ends a wait also closes the provider's socket.
"""

from __future__ import annotations

import socket
from select import POLLERR, POLLHUP, POLLIN
from types import TracebackType
from weakref import WeakKeyDictionary

import gevent
from gevent.hub import Hub
from gevent.monkey import get_original
from greenlet import getcurrent, greenlet

from apps.kernel.errors import ClientGone

# Seconds between two looks at all clients: most are answered before the first and cost nothing but their place in a
# set, where a watch of its own would cost each request a watcher and the system calls that set it up.
POLL_SECONDS = 0.1
# The kernel's own poll: a look must not switch to another greenlet.
_poll = get_original("select", "poll")


class ClientDisconnect:
    """Watches one client's connection. Without a socket (another server, a test client) it never interrupts.

    The watch begins with the first wait and goes on until `close`.
    """

    # Whether another handler answers the request again under the same id: then it leaves no record here.
    is_abandoned = False

    def __init__(self, client: socket.socket | None) -> None:
        self._client = client
        self._gone = False
        self._waiting: list[greenlet] = []
        self._poller: DisconnectPoller | None = None

    def raise_while_waiting(self) -> ClientDisconnect:
        """Within this block a wait ends with ClientGone when the client closes its side."""
        return self

    def __enter__(self) -> None:
        if self._client is None:
            return
        if self._gone:
            raise ClientGone("The client closed the connection")
        if self._poller is None:
            self._poller = _find_poller()
            self._poller.watch(self, self._client)
        self._waiting.append(getcurrent())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._waiting.remove(getcurrent())

    def close(self) -> None:
        """End the watch."""
        if self._poller is not None:
            self._poller.forget(self)
            self._poller = None
        self._client = None

    def raise_in_waiters(self) -> None:
        """The client is gone: end every wait. Called from the event loop."""
        self._gone = True
        for waiting in list(self._waiting):
            waiting.throw(ClientGone("The client closed the connection"))


class CancelSwitch(ClientDisconnect):
    """The switch of a request that the gateway makes itself, without a connection: only `cancel` ends a wait."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def is_thrown(self) -> bool:
        """Whether the run was cancelled."""
        return self._gone

    def cancel(self) -> None:
        """End every wait of the run, and each that it would begin. May be called from any greenlet."""
        self._gone = True
        if self._waiting:
            gevent.get_hub().loop.run_callback(self.raise_in_waiters)

    def __enter__(self) -> None:
        if self._gone:
            raise ClientGone("The request was cancelled")
        self._waiting.append(getcurrent())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.remove(getcurrent())

    def close(self) -> None:
        """End the watch; there is none."""


class DisconnectPoller:
    """Polls the sockets of all clients of an event loop that are being waited for, a few times a second, if any are.

    A client is registered with the kernel's poll at the first look and stays so: to register thousands of slow streams
    at each look would hold up the event loop.
    """

    def __init__(self, hub: Hub) -> None:
        self.clients: dict[ClientDisconnect, socket.socket] = {}
        self.is_polling = False
        self._timer = hub.loop.timer(POLL_SECONDS, POLL_SECONDS, ref=False)
        # Clients since the last look; those that were there then, by descriptor, and their descriptors. An answer with
        # tools watches one connection twice: for all of its turns, and for the present one.
        self._new: list[ClientDisconnect] = []
        self._by_descriptor: dict[int, list[ClientDisconnect]] = {}
        self._descriptors: dict[ClientDisconnect, int] = {}
        self._kernel = _poll()

    def watch(self, client_disconnect: ClientDisconnect, client: socket.socket) -> None:
        """Poll a client's socket from now on."""
        self.clients[client_disconnect] = client
        self._new.append(client_disconnect)
        if not self.is_polling:
            self.is_polling = True
            self._timer.start(self._poll_clients)

    def forget(self, client_disconnect: ClientDisconnect) -> None:
        """Poll a client's socket no longer. Most are forgotten before the first look."""
        self.clients.pop(client_disconnect, None)
        descriptor = self._descriptors.pop(client_disconnect, None)
        if descriptor is not None:
            watching = self._by_descriptor[descriptor]
            watching.remove(client_disconnect)
            if not watching:
                del self._by_descriptor[descriptor]
                self._kernel.unregister(descriptor)

    def _poll_clients(self) -> None:
        if not self.clients:
            # A worker that has nothing to do is not woken for that.
            self.is_polling = False
            self._timer.stop()
            self._new.clear()
            return
        self._register_new()
        for descriptor, _ in self._kernel.poll(0):
            for client_disconnect in list(self._by_descriptor.get(descriptor, ())):
                client = self.clients.get(client_disconnect)
                if client is None or client.fileno() != descriptor:
                    # Closed on this side; another connection may have its descriptor.
                    self.forget(client_disconnect)
                # More bytes of the client's are a pipelined request, which can wait.
                elif _is_closed(client):
                    self.forget(client_disconnect)
                    client_disconnect.raise_in_waiters()

    def _register_new(self) -> None:
        for client_disconnect in self._new:
            client = self.clients.get(client_disconnect)
            is_new = client_disconnect not in self._descriptors
            if client is not None and is_new and (descriptor := client.fileno()) >= 0:
                if descriptor not in self._by_descriptor:
                    self._kernel.register(descriptor, POLLIN | POLLHUP | POLLERR)
                self._by_descriptor.setdefault(descriptor, []).append(client_disconnect)
                self._descriptors[client_disconnect] = descriptor
        self._new.clear()


_pollers: WeakKeyDictionary[Hub, DisconnectPoller] = WeakKeyDictionary()


def _find_poller() -> DisconnectPoller:
    """Return the poller of the event loop that runs this."""
    hub = gevent.get_hub()
    watch = _pollers.get(hub)
    if watch is None:
        watch = _pollers[hub] = DisconnectPoller(hub)
    return watch


def _is_closed(client: socket.socket) -> bool:
    """Return whether a readable socket is readable because its other side is gone."""
    timeout = client.gettimeout()
    client.settimeout(0.0)
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except (BlockingIOError, ValueError):
        # TLS allows no look ahead; sending shows that a client is gone.
        return False
    except OSError:
        return True
    finally:
        client.settimeout(timeout)
