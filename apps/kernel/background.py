"""Work that nobody waits for: on a greenlet of its own where sockets switch greenlets, else at once.

Must never know what is done. What goes wrong there is logged, and nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent
import structlog
from gevent.monkey import is_module_patched

log = structlog.get_logger(__name__)


def run_in_background(work: Callable[[], object]) -> None:
    """Do the work without letting the caller wait for it, nor see it fail."""
    if is_module_patched("socket"):
        gevent.spawn(_contained, work)
    else:
        _contained(work)


def _contained(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        log.exception("background.failed")
