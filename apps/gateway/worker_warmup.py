"""Worker warm-up: guardrails are loaded before a request needs them, and what stays is kept from garbage collection.

Guardrails are loaded where any organization has some, or may switch them on.
Loading the rules holds the interpreter for up to a tenth of a second at a time (RE2 compiles without letting others
run), so it is done while few wait. A worker of an installation without an organization that may have guardrails asks
the database once a minute and loads nothing: the rules take 30 to 90 MB.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

import gevent
import structlog
from django.db import DatabaseError

from apps.gateway.settlement import worker_lease
from apps.guardrails.configuration.compiled_cache import (
    is_any_organization_guarded,
    may_any_organization_be_guarded,
    warm_up_rules_once,
)
from apps.guardrails.rule_thread import on_rule_thread
from apps.kernel.postgres import database

log = structlog.get_logger(__name__)

# Seconds after the start, so that what the worker answers first does not wait.
WARMUP_DELAY: Final = 0.5
# Seconds after the start, and from then on between looks, for organizations that only may switch guardrails on.
POSSIBLE_DELAY: Final = 4.5
POSSIBLE_INTERVAL: Final = 60.0


def warm_up_soon() -> None:
    """Have the worker made ready in the background. Returns at once."""
    # Its room on the disk is taken while there is some.
    gevent.spawn(worker_lease.start)
    gevent.spawn_later(WARMUP_DELAY, _warm_up)


def _warm_up() -> None:
    ready = warm_up_guardrails(is_any_organization_guarded)
    freeze_loaded_objects()
    if ready:
        return
    gevent.sleep(POSSIBLE_DELAY)
    while not warm_up_guardrails(may_any_organization_be_guarded):
        gevent.sleep(POSSIBLE_INTERVAL)
    freeze_loaded_objects()


def freeze_loaded_objects() -> None:
    """Freeze all loaded objects, so that the garbage collector skips them.

    A collection of all modules takes some 80 ms, during which no request is answered.
    """
    gc.collect()
    gc.freeze()


def warm_up_guardrails(wanted: Callable[[], bool]) -> bool:
    """Make guardrails ready where they are wanted; return whether they are.

    It happens on a thread, so that requests go on meanwhile.
    """
    try:
        if not wanted():
            return False
    except DatabaseError as error:
        # The next look does it, or the first request that needs them.
        log.warning("guardrails.not_readied", error=type(error).__name__)
        return False
    finally:
        database.release_connection()
    on_rule_thread(warm_up_rules_once)
    return True
