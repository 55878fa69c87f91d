"""Suspicious requests: unknown hosts, forged forms, unreadable bodies, counted by kind.

A client may send many of them, so each kind is logged at most once a second, without a traceback.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from typing import Any

import structlog
from prometheus_client import Counter

log = structlog.get_logger(__name__)

SUSPICIOUS = Counter("gateway_suspicious_requests_total", "Requests that the framework's checks refused", ["kind"])
# Seconds between log entries of one kind.
_BETWEEN_LINES = 1.0
_untold: Counts[str] = Counts()
_told_at: dict[str, float] = {}


def count_suspicious(kind: str, **details: Any) -> None:
    """Count a request, and log its details unless one was just logged. The caller limits the details' size."""
    SUSPICIOUS.labels(kind).inc()
    _untold[kind] += 1
    now = time.monotonic()
    if now - _told_at.get(kind, -_BETWEEN_LINES) >= _BETWEEN_LINES:
        _told_at[kind] = now
        log.info("request.suspicious", kind=kind, count=_untold.pop(kind), **details)
