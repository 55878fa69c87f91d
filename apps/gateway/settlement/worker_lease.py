"""Worker lease: the heartbeat that keeps a process's reservations its own, and its other periodic work."""

from __future__ import annotations

import atexit
import os

import gevent
import structlog
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.billing import worker_leases
from apps.gateway import metrics
from apps.gateway.admission import offline_admission
from apps.gateway.routing import circuit_breaker
from apps.gateway.settlement import disk_space, outbox, record_backlog, spool
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.gateway.settlement.retransmission import RETRANSMISSION
from apps.kernel.store_urls import address_of
from apps.kernel.valkey import shards
from apps.kernel.valkey.shards import OtherShards
from apps.logs import refusals

log = structlog.get_logger(__name__)

BEAT_SECONDS, COUNT_SECONDS = 3.0, 1.0
# Seconds that a process which ends waits for its records to arrive, and for its backlog to be taken.
_FLUSH_TIMEOUT, _BACKLOG_TIMEOUT = 5.0, 20.0
# The exit status of a process that must not go on.
_CANNOT_SERVE = 4
_started = False


def start() -> None:
    """Start the heartbeat and the spool's replay, once a process, before its first reservation."""
    global _started
    if _started:
        return
    # Before the first wait: others ask meanwhile.
    _started = True
    atexit.register(retire)
    _reserve_disk_space()
    if _beat():
        _retransmit()
    gevent.spawn(_beat_forever)
    gevent.spawn(circuit_breaker.sync_forever)
    gevent.spawn(_flush_metrics)


def _begin_anew() -> None:
    """Start again in a forked child, which has none of its parent's greenlets."""
    global _started
    _started = False


os.register_at_fork(after_in_child=_begin_anew)


def _beat_forever() -> None:
    """Beat, and replay records spooled while the store was unavailable, for as long as the process lives."""
    while True:
        gevent.sleep(BEAT_SECONDS)
        _reserve_disk_space()
        if _beat():
            outbox.replay_spool()
            _note_store_recovery()
            _retransmit()


def _note_store_recovery() -> None:
    try:
        offline_admission.on_heartbeat()
    except RedisError as error:
        log.warning("worker.not_given_back", error=type(error).__name__)


def _retransmit() -> None:
    try:
        RETRANSMISSION.look()
    except (RedisError, DatabaseError, OSError) as error:
        log.warning("worker.not_retransmitted", error=type(error).__name__)


def _flush_metrics() -> None:
    while True:
        gevent.sleep(COUNT_SECONDS)
        metrics.flush_to_prometheus()
        _flush_refusals()


def _flush_refusals() -> None:
    try:
        refusals.flush()
    except RedisError as error:
        log.warning("worker.refusals_not_counted", error=type(error).__name__)


def _reserve_disk_space() -> None:
    """Have room on the disk for records before it is needed, and look how much else there is."""
    try:
        record_backlog.prepare()
        spool.reserve()
    except OSError as error:
        log.warning("worker.no_room_for_records", error=error.strerror)
    disk_space.check_disk_space()


def _beat() -> bool:
    try:
        shards.require()
        worker_leases.send_heartbeat(worker_leases.worker_name())
    except OtherShards as error:
        # It would reserve beside the others. The web server's own code for an application that cannot serve.
        log.critical("worker.other_shards", error=str(error))
        os._exit(_CANNOT_SERVE)
    except RedisError as error:
        log.warning("worker.beat_missed", store=address_of(settings.REDIS_URL), error=type(error).__name__)
        return False
    return True


def retire() -> None:
    """End this process's lease, after a last flush: what it still holds is swept at once."""
    metrics.flush_to_prometheus()
    _flush_refusals()
    # Else what has been answered would be swept as if it had not.
    outbox.flush_pending(_BACKLOG_TIMEOUT if BACKLOG.waiting else _FLUSH_TIMEOUT)
    _retransmit()
    try:
        worker_leases.expire_lease(worker_leases.worker_name())
    except RedisError as error:
        log.warning("worker.not_retired", error=type(error).__name__)
