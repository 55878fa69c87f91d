"""Background work: runs on its own greenlet in a gevent worker, else immediately. Failures are logged only."""

from __future__ import annotations

from collections.abc import Callable

import gevent
import structlog
from gevent.monkey import is_module_patched

log = structlog.get_logger(__name__)


def run_in_background(work: Callable[[], object]) -> None:
    """Run the work without blocking the caller; failures are logged."""
    if is_module_patched("socket"):
        gevent.spawn(_contained, work)
    else:
        _contained(work)


def _contained(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        log.exception("background.failed")
