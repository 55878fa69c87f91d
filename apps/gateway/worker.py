"""Who this process is: a name under which it owns reservations, and the heartbeat that keeps them its own.

Knows the life of one process. Must never know a request.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
from functools import cache

import gevent
import structlog
from redis.exceptions import RedisError

from apps.billing import leases
from apps.gateway import disk_space, offline_admission, outbox, record_backlog, scoreboard, spool, tally
from apps.gateway.record_backlog import BACKLOG

log = structlog.get_logger(__name__)

BEAT_SECONDS, COUNT_SECONDS = 3.0, 1.0
# Seconds that a process which ends waits for its records to have arrived, and for those that nobody took to be taken.
_LAST_WORDS, _LAST_TRIES = 5.0, 20.0
_started = False


@cache
def name() -> str:
    """Return this process's name: never the same twice, so that nobody inherits a dead one's reservations."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def start() -> None:
    """Start the heartbeat and the spool's replay, once a process, before its first reservation."""
    global _started
    if _started:
        return
    # Before the first wait: others ask meanwhile.
    _started = True
    atexit.register(retire)
    _take_room()
    _beat()
    gevent.spawn(_live)
    gevent.spawn(scoreboard.keep)
    gevent.spawn(_count)


def _begin_anew() -> None:
    """Be another process: a child has neither its parent's name nor its greenlets."""
    global _started
    _started = False
    name.cache_clear()


os.register_at_fork(after_in_child=_begin_anew)


def _live() -> None:
    """Beat, and bring in what was spooled while the store was away, for as long as the process lives."""
    while True:
        gevent.sleep(BEAT_SECONDS)
        _take_room()
        if _beat():
            outbox.replay()
            _tell_that_it_answers()


def _tell_that_it_answers() -> None:
    try:
        offline_admission.store_answers()
    except RedisError as error:
        log.warning("worker.not_given_back", error=type(error).__name__)


def _count() -> None:
    while True:
        gevent.sleep(COUNT_SECONDS)
        tally.hand_over()


def _take_room() -> None:
    """Have room on the disk for records before it is needed, and look how much else there is."""
    try:
        record_backlog.prepare()
        spool.reserve()
    except OSError as error:
        log.warning("worker.no_room_for_records", error=error.strerror)
    disk_space.look()


def _beat() -> bool:
    try:
        leases.beat(name())
    except RedisError as error:
        log.warning("worker.beat_missed", error=type(error).__name__)
        return False
    return True


def retire() -> None:
    """Say that this process ends: what it still holds is swept at once."""
    tally.hand_over()
    # Else what has been answered would be swept as if it had not.
    outbox.arrive(_LAST_TRIES if BACKLOG.waiting else _LAST_WORDS)
    try:
        leases.retire(name())
    except RedisError as error:
        log.warning("worker.not_retired", error=type(error).__name__)
