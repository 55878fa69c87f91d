"""gunicorn's configuration: addresses, workers, timeouts, limits.

The application is loaded once, before workers are forked: they share its memory and start at once. So gevent
patches the standard library here, and nothing that loads with the application may open a connection or start a
thread.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from typing import Any

from gevent import monkey

from gateway_project.processes import draining
from gateway_project.processes.graceful_reload import BACKLOG, DRAIN, LISTEN, STOP_TIMEOUT, report_ready
from gateway_project.processes.memory_tuning import return_freed_memory

monkey.patch_all()


def _count(name: str, default: int) -> int:
    value = os.environ.get(name) or str(default)
    if not value.isdecimal() or not int(value):
        raise SystemExit(f"{name} must be a positive whole number; it is {value!r}")
    return int(value)


# The supervisor's socket when it started this process.
_listening = os.environ.get(LISTEN)
_host = os.environ.get("GATEWAY_HOST") or "127.0.0.1"
_place = f"{f'[{_host}]' if ':' in _host else _host}:{_count('PORT', 8000)}"
bind = f"fd://{_listening}" if _listening else _place

worker_class = "gateway_project.processes.gunicorn_worker.GatewayWorker"
workers = _count("WEB_WORKERS", min(os.cpu_count() or 1, 4))
_DESCRIPTORS = 256  # For one worker, besides those of its connections.


def _connections(wanted: int) -> int:
    """Return how many connections a worker takes: each may need a file descriptor towards a provider, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted * 2 + _DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (ValueError, OSError):
            # Some systems have a limit of their own below the one that they tell.
            most = soft
    return max(64, min(wanted, (most - _DESCRIPTORS) // 2))


# Connections of one worker; most are idle or wait for a provider.
worker_connections = _connections(_count("WORKER_CONNECTIONS", 10_000))
backlog = BACKLOG
preload_app = True

# Seconds: an idle client connection (longer than a load balancer's usual 60), the answers under way at a stop or when
# another process has taken over, and a worker that shows no life.
keepalive = 75
_drain_timeout = _count("DRAIN_TIMEOUT", 960)
# The longest of both where there is a supervisor; a worker takes as much of it as is right (`serving.Worker`).
graceful_timeout = max(_drain_timeout, STOP_TIMEOUT) if os.environ.get(DRAIN) else STOP_TIMEOUT
timeout = 60

limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 16384

# Proxies that are trusted to state the client's address and scheme; none by default.
forwarded_allow_ips = os.environ.get("FORWARDED_ALLOW_IPS", "")

# Requests are in the request log and the metrics; the control interface would be one more way in.
accesslog = None
# Logs failures of workers, and not their normal starts and ends.
loglevel = "warning"
control_socket_disable = True


# Seconds after which a thread that computes lets the event loop go on, which has to ask for that some ten times in a
# request. With Python's own 5 ms a request beside such a thread took up to 64 ms (the 99th percentile), with this a
# quarter of that. Where no thread computes nothing is switched.
_SWITCH_INTERVAL = 0.0005


def on_starting(server: Any) -> None:
    """Serve again on a node that was drained."""
    draining.end()


def when_ready(server: Any) -> None:
    """Keep the garbage collector's hands off the application: it writes to the objects that it looks through, and each
    page of memory that is written to is copied for the worker that does."""
    gc.collect()
    gc.freeze()


def post_worker_init(worker: Any) -> None:
    """Let the application begin what it does beside answering, if it has anything."""
    return_freed_memory()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    begin = getattr(worker.wsgi, "begin", None)
    if begin is not None:
        begin()
    report_ready(worker.cfg.workers)


def child_exit(server: Any, worker: Any) -> None:
    """Take an ended worker's live gauges out of the metrics."""
    _remove_live_gauges(worker.pid)


def on_exit(server: Any) -> None:
    """Take this process's own live gauges out of the metrics, which loading the application made."""
    _remove_live_gauges(os.getpid())


def _remove_live_gauges(pid: int) -> None:
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]  # the library types only some
