"""Work on batches: inputs are prepared, lines begun and results written, for as long as there is something to do.

What there is to do stands in PostgreSQL: a wake-up that is lost, or one too many, changes nothing. Knows the order.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import gevent
import structlog
from django.db import DatabaseError
from gevent.monkey import is_module_patched

from apps.batches import line_runs
from apps.batches.completion import complete_some
from apps.batches.models import OPEN_STATUSES, Batch
from apps.batches.native.jobs import advance_one
from apps.batches.preparation import prepare_some
from apps.kernel.concurrency.turn_queue import let_others_go_on
from apps.kernel.errors import Overloaded
from apps.kernel.postgres import database

log = structlog.get_logger(__name__)

# Seconds until somebody else may have left something to do.
_LOOK: Final = 0.5
_GATHER: Final = 0.02
_working = _stopping = False


def work(seconds: float) -> None:
    """Work on batches until nothing is to be done just now, or so many seconds have passed. One at a time a process."""
    global _working
    if _working or _stopping:
        return
    _working = True
    try:
        _work_until(time.monotonic() + seconds)
    except (DatabaseError, Overloaded) as error:
        log.warning("batches.not_worked", error=type(error).__name__)
    finally:
        _working = False


def stop() -> None:
    """Begin nothing more, and hand over what this process has not ended: it is about to end itself."""
    global _stopping
    _stopping = True
    line_runs.WORK.let_go()


def _work_until(deadline: float) -> None:
    is_open = partial(Batch.objects.filter(status__in=OPEN_STATUSES).exists)
    begun, looked_at, advanced = 0, 0.0, False
    while not _stopping and time.monotonic() < deadline:
        looks = advanced or not begun or time.monotonic() - looked_at > _LOOK
        if looks:
            if not line_runs.JOBS and not database.read(is_open):
                return
            # A piece of each: none of them waits until another has no more to do.
            pieces = [prepare_some(), complete_some(), advance_one()]
            advanced, looked_at = any(pieces), time.monotonic()
        begun = line_runs.begin_lines()
        if is_module_patched("socket"):
            _wait(advanced, begun)
        elif looks and not (advanced or begun):
            return


def _wait(advanced: bool, begun: int) -> None:
    """Wait until there may be more to do: at once, as long as it goes on without a line's having ended."""
    if advanced:
        # Lines that are under way have their turn.
        let_others_go_on()
    elif not begun or line_runs.JOBS:
        line_runs.ENDED.clear()
        line_runs.ENDED.wait(_LOOK)
        # Others that end about now are followed together.
        gevent.sleep(_GATHER)
