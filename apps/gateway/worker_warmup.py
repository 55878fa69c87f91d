"""What a worker does for itself soon after it has started: guardrails made ready before a request needs them, where any
organization has any, and what has been loaded for good put out of the garbage collector's way.

Knows when. Must never know a request. A worker of an installation without guardrails asks the database once and loads
nothing.
"""

from __future__ import annotations

import gc
from typing import Final

import gevent
import structlog
from django.db import DatabaseError

from apps.gateway.settlement import worker_lease
from apps.guardrails.configuration.compiled_cache import is_any_organization_guarded
from apps.guardrails.configuration.rule_warmup import warm_up_rules_once
from apps.guardrails.rule_thread import on_rule_thread
from apps.kernel import database

log = structlog.get_logger(__name__)

# Seconds after the start, so that what the worker answers first does not wait.
WARMUP_DELAY: Final = 0.5


def warm_up_soon() -> None:
    """Have the worker made ready in the background. Returns at once."""
    # Its room on the disk is taken while there is some.
    gevent.spawn(worker_lease.start)
    gevent.spawn_later(WARMUP_DELAY, _warm_up)


def _warm_up() -> None:
    warm_up_guardrails()
    freeze_loaded_objects()


def freeze_loaded_objects() -> None:
    """Take what has been loaded so far as there to stay: nobody looks through it for garbage any more.

    To look through all modules takes some 80 ms, and nobody is answered meanwhile.
    """
    gc.collect()
    gc.freeze()


def warm_up_guardrails() -> None:
    """Make guardrails ready, if anybody has any: on a thread, so that requests go on meanwhile."""
    try:
        wanted = is_any_organization_guarded()
    except DatabaseError as error:
        # The first request that needs them loads them.
        log.warning("guardrails.not_readied", error=type(error).__name__)
        return
    finally:
        database.release_connection()
    if wanted:
        on_rule_thread(warm_up_rules_once)
