"""What clients did that no view sees, as metrics and log lines: refused requests, aborted bodies, closed connections.

Knows names of events. Must never decide anything. Import it in a worker only, after gevent's patches.
"""

from __future__ import annotations

import time
from collections import Counter as Counts

import structlog
from prometheus_client import Counter

log = structlog.get_logger("gateway_project.http")

REFUSED = Counter("gateway_refused_requests_total", "Requests refused before any view saw them", ["reason"])
CLOSED = Counter("gateway_closed_connections_total", "Connections closed by the gateway's own choice", ["reason"])
ABORTED = Counter("gateway_aborted_bodies_total", "Requests whose client left before its body was complete")

# Seconds between two lines about one kind of event: a flood is a number, not a flood of lines.
_BETWEEN_LINES = 1.0
_untold: Counts[str] = Counts()
_told_at: dict[str, float] = {}


def refused(reason: str) -> None:
    """Count a refused request."""
    REFUSED.labels(reason).inc()
    _tell("client.refused", reason)


def closed(reason: str) -> None:
    """Count a connection that had to go."""
    CLOSED.labels(reason).inc()
    _tell("client.connection_closed", reason)


def aborted() -> None:
    """Count a client that left in the middle of its request."""
    ABORTED.inc()
    _tell("client.body_aborted", "client_left")


def _tell(event: str, reason: str) -> None:
    kind = f"{event} {reason}"
    _untold[kind] += 1
    now = time.monotonic()
    if now - _told_at.get(kind, -_BETWEEN_LINES) >= _BETWEEN_LINES:
        _told_at[kind] = now
        log.info(event, reason=reason, count=_untold.pop(kind))
