"""gunicorn's gevent worker, which here does not wait for idle connections when it is told to stop.

Clients keep connections open for their next request. gunicorn takes an idle one for work in progress and waits for it
as long as its graceful time lasts; this worker closes those at once and waits only for answers under way.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

import gevent
from greenlet import getcurrent
from gunicorn.workers.ggevent import GeventWorker

_LOOK_EVERY = 0.1


class Worker(GeventWorker):  # type: ignore[misc] # gunicorn has no types
    """Serves until told to stop; then lets idle connections go and finishes what it has begun."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.idle: set[Idle] = set()

    def timeout_ctx(self) -> Idle:
        """Return what a connection waits for its next request in."""
        return Idle(self)

    def run(self) -> None:
        """Serve."""
        gevent.spawn(self._let_idle_go)
        super().run()

    def _let_idle_go(self) -> None:
        while True:
            gevent.sleep(_LOOK_EVERY)
            if not self.alive:
                for one in self.idle:
                    gevent.get_hub().loop.run_callback(one.end)


class Idle(gevent.Timeout):
    """A connection waiting for its next request; ends when one comes, keep-alive is over, or the worker stops."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.cfg.keepalive)
        self._worker = worker
        self._greenlet = getcurrent()

    def __enter__(self) -> Idle:
        self._worker.idle.add(self)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[True] | None:
        self._worker.idle.discard(self)
        super().__exit__(kind, error, trace)
        return True if error is self else None

    def end(self) -> None:
        """Stop waiting, unless a request has come meanwhile. Runs in the hub, between greenlets."""
        if self in self._worker.idle:
            self._greenlet.throw(self)
