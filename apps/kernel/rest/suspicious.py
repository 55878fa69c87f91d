"""Suspicious requests: unknown hosts, forged forms, unreadable bodies, counted by kind.

A client may send many of them, so each kind is logged at most once a second, without a traceback.
"""
# alone: a counter with its log, of requests that the framework refuses before a view

from __future__ import annotations

import time
from collections import Counter as Counts
from typing import Any, Final

import structlog
from django.core.exceptions import BadRequest, SuspiciousOperation
from django.http.multipartparser import MultiPartParserError
from prometheus_client import Counter

from apps.kernel.zero_series import begin_at_zero

log = structlog.get_logger(__name__)

SUSPICIOUS = Counter("gateway_suspicious_requests_total", "Requests that the framework's checks refused", ["kind"])
FORGED_FORM: Final = "ForgedForm"
_KINDS: tuple[type[Exception], ...] = (
    SuspiciousOperation,
    *SuspiciousOperation.__subclasses__(),
    BadRequest,
    MultiPartParserError,
)
begin_at_zero(SUSPICIOUS, (FORGED_FORM, *(kind.__name__ for kind in _KINDS)))
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
