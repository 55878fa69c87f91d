"""gunicorn worker (gevent) with an HTTP server of our own (`gateway_project.http`): a quarter of the work a request.

Clients keep connections open for their next request. gunicorn takes an idle one for work in progress and waits for it
as long as its graceful time lasts; this worker closes those at once and waits only for answers under way.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, partial
from ipaddress import ip_address
from socket import SHUT_WR
from typing import Any

import gevent
from gunicorn.http.wsgi import base_environ
from gunicorn.workers.ggevent import GeventWorker

from apps.kernel.rest.request_headers import believed_address
from gateway_project.http.acceptor import Acceptor
from gateway_project.http.admission_control import AdmissionControl
from gateway_project.http.client_events import TurnTimes
from gateway_project.http.connection import ClientConnection, ConnectionSettings
from gateway_project.http.connection_table import ConnectionTable, Idle
from gateway_project.http.limits import ClientLimits
from gateway_project.http.request_intake import RequestIntake
from gateway_project.http.request_parser import HeadLimits
from gateway_project.processes.graceful_reload import STOP_TIMEOUT, is_draining

_LOOK_EVERY = 0.1
# For an address that has as many connections as it may; what it asks for has not been read.
_TOO_MANY_BODY = b'{"error":true,"status":429,"message":"Too many connections from this address"}'
_TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: %d\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_TOO_MANY_BODY), _TOO_MANY_BODY)
)


class GatewayWorker(GeventWorker):  # type: ignore[misc] # gunicorn has no types
    """Serves until told to stop; then lets idle connections go and finishes what it has begun."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alive: bool
        self._most_patience = STOP_TIMEOUT

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection. TLS and the other protocols that gunicorn supports are left to gunicorn."""
        if self.cfg.is_ssl or self.cfg.proxy_protocol != "off":
            super().handle(listener, client, addr)
            return
        client.setblocking(1)
        address = self._counted_as(addr)
        try:
            if not self.connections.opened(address):
                with suppress(OSError):
                    client.send(_TOO_MANY)
                    client.shutdown(SHUT_WR)
                return
            try:
                idle = Idle(self.connections, address)
                ClientConnection(self.connection_settings, client, addr, lambda: not self.alive).serve(idle, self.count)
            finally:
                self.connections.gone(address)
        finally:
            client.close()

    def server_class(self, listener: Any, *, spawn: Any, **settings: Any) -> Acceptor:
        """Return what accepts connections: gunicorn asks a class of servers for it, with what its WSGI server needs."""
        tls = {name: settings[name] for name in settings if name == "ssl_context"}
        handle = partial(self.handle, listener)
        return Acceptor(listener, self.cfg.workers, self._counted_as, handle=handle, spawn=spawn, **tls)

    def _counted_as(self, addr: Any) -> str | None:
        """Return the address whose connections are limited; None for a trusted proxy, which has those of many."""
        peer = addr[0] if isinstance(addr, tuple) else ""
        return None if not peer or self._trusts(peer) else believed_address(peer, "", 0)

    @cached_property
    def limits(self) -> ClientLimits:
        """The limits for one client."""
        return ClientLimits.of_environment()

    @cached_property
    def connections(self) -> ConnectionTable:
        """All open connections."""
        from gateway_project.http import client_events

        return ConnectionTable(
            self.worker_connections,
            self.limits.connections_per_address,
            self.limits.first_byte_timeout,
            self.cfg.keepalive,
            client_events.closed,
        )

    @cached_property
    def connection_settings(self) -> ConnectionSettings:
        """The settings of all connections."""
        from apps.kernel.valkey import redis
        from gateway_project.http import client_events

        cfg = self.cfg
        name = self.sockets[0].getsockname()
        host, port = name[:2] if isinstance(name, tuple) else (name, "")
        limits = self.limits
        admission = AdmissionControl(limits.requests_in_progress, limits.queue_time, unanswered=redis.unanswered)
        return ConnectionSettings(
            application=self.wsgi,
            limits=HeadLimits(cfg.limit_request_line, cfg.limit_request_fields, cfg.limit_request_field_size),
            environ={
                **base_environ(cfg),
                "wsgi.multithread": True,
                "SERVER_NAME": str(host),
                "SERVER_PORT": str(port),
                "SCRIPT_NAME": "",
            },
            trusts=self._trusts,
            scheme_headers={
                f"HTTP_{header.replace('-', '_')}": value.lower() for header, value in cfg.secure_scheme_headers.items()
            },
            on_failure=self.log.exception,
            intake=RequestIntake(self.limits, admission, self._trusts, client_events.refused),
            on_refused=client_events.refused,
            on_aborted=client_events.aborted,
        )

    def _trusts(self, host: str) -> bool:
        """Tell whether a proxy at this address is believed."""
        allowed = self.cfg.forwarded_allow_ips
        if "*" in allowed or host in allowed:
            return True
        return bool(host) and any(ip_address(host) in network for network in self.cfg.forwarded_allow_networks())

    def count(self) -> None:
        """Count a request; after the most that a worker serves, it ends and another takes its place."""
        self.nr += 1
        if self.alive and self.nr >= self.max_requests:
            self.log.info("Autorestarting worker after current request.")
            self.alive = False

    def timeout_ctx(self) -> Idle:
        """Return what a connection waits for its next request in, where gunicorn serves it."""
        return Idle(self.connections)

    def run(self) -> None:
        """Serve."""
        # Before there is a connection that it would keep waiting.
        _ = self.connection_settings
        self._most_patience = self.cfg.graceful_timeout
        gevent.spawn(self._look_around)
        super().run()

    def _look_around(self) -> None:
        from gateway_project.http import client_events

        turns = TurnTimes()
        while True:
            gevent.sleep(_LOOK_EVERY)
            client_events.LOOP_TURNS.observe(turns.take_longest())
            self.connections.end_overdue(stopping=not self.alive)
            client_events.hand_over()
            if not self.alive:
                # Answers in progress have no time limit when another process has replaced this one.
                patience = self._most_patience if is_draining() else min(STOP_TIMEOUT, self._most_patience)
                self.cfg.set("graceful_timeout", patience)
