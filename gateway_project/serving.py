"""gunicorn's gevent worker with an HTTP of our own (`gateway_project.http`), a quarter of the work for each request.

Clients keep connections open for their next request. gunicorn takes an idle one for work in progress and waits for it
as long as its graceful time lasts; this worker closes those at once and waits only for answers under way.
"""

from __future__ import annotations

import time
from functools import cached_property
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Literal

import gevent
from greenlet import getcurrent
from gunicorn.http.wsgi import base_environ
from gunicorn.workers.ggevent import GeventWorker

from gateway_project.http.connection import Connection, Terms
from gateway_project.http.reading import Limits

_LOOK_EVERY = 0.1


class Worker(GeventWorker):  # type: ignore[misc] # gunicorn has no types
    """Serves until told to stop; then lets idle connections go and finishes what it has begun."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alive: bool
        self.idle: set[Idle] = set()

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection. TLS and what else gunicorn can be told to speak here stays gunicorn's own."""
        if self.cfg.is_ssl or self.cfg.proxy_protocol != "off":
            super().handle(listener, client, addr)
            return
        client.setblocking(1)
        try:
            Connection(self.terms, client, addr, lambda: not self.alive).serve(Idle(self), self.count)
        finally:
            client.close()

    @cached_property
    def terms(self) -> Terms:
        """What holds for every connection."""
        cfg = self.cfg
        name = self.sockets[0].getsockname()
        host, port = name[:2] if isinstance(name, tuple) else (name, "")
        return Terms(
            application=self.wsgi,
            limits=Limits(cfg.limit_request_line, cfg.limit_request_fields, cfg.limit_request_field_size),
            environ={
                **base_environ(cfg),
                "wsgi.multithread": True,
                "SERVER_NAME": str(host),
                "SERVER_PORT": str(port),
                "SCRIPT_NAME": "",
            },
            keepalive=cfg.keepalive,
            trusts=self._trusts,
            scheme_headers={
                f"HTTP_{header.replace('-', '_')}": value.lower() for header, value in cfg.secure_scheme_headers.items()
            },
            failed=self.log.exception,
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
        return Idle(self)

    def run(self) -> None:
        """Serve."""
        gevent.spawn(self._let_idle_go)
        super().run()

    def _let_idle_go(self) -> None:
        while True:
            gevent.sleep(_LOOK_EVERY)
            oldest = time.monotonic() - self.cfg.keepalive
            for one in [one for one in self.idle if not self.alive or one.since < oldest]:
                one.end()


class Idle:
    """A connection waiting for its next request; ends when one comes, keep-alive is over, or the worker stops."""

    def __init__(self, worker: Worker) -> None:
        self.since = 0.0
        self._worker = worker
        self._greenlet = getcurrent()
        self._over = _Over()

    def __enter__(self) -> Idle:
        self.since = time.monotonic()
        self._worker.idle.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[True] | None:
        self._worker.idle.discard(self)
        return True if error is self._over else None

    def end(self) -> None:
        """Stop waiting, unless a request has come meanwhile."""
        gevent.get_hub().loop.run_callback(self._end)

    def _end(self) -> None:
        if self in self._worker.idle:
            self._worker.idle.discard(self)
            self._greenlet.throw(self._over)


class _Over(BaseException):
    """What a waiting connection is woken with."""
