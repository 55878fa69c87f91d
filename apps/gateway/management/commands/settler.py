"""`python manage.py settler`: the process that moves records from the outbox into the log and the ledger.

Any number may run; each record is written once. Stops on SIGTERM after the batch at hand.
"""

from __future__ import annotations

import signal
import socket
import time
from os import getpid
from secrets import token_hex
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, connection
from redis.exceptions import RedisError

from apps.billing.balance_copies import LedgerWatch
from apps.billing.worker_leases import StoreClocks
from apps.gateway.metrics import QUEUE_AGE, QUEUE_DEPTH
from apps.gateway.settlement import clearing, outbox
from apps.gateway.settlement.outbox import OutboxReader
from apps.gateway.settlement.reconcile import update_metrics
from apps.gateway.settlement.settle import settle, sweep
from apps.kernel.store_urls import address_of
from apps.kernel.valkey import shards
from apps.kernel.valkey.redis import SHARD_COUNT
from apps.kernel.valkey.shards import OtherShards
from apps.provider_bills import metrics as bill_metrics

log = structlog.get_logger(__name__)

BATCH = 500
WAIT_MS = 200
# Seconds between batches, and where so many records come: what a batch costs, it costs whatever its size, and one of
# 200 takes less than half of the work of seven of 30. A record that comes after a pause is settled at once.
PAUSE_SECONDS, MANY, GATHER_SECONDS = 0.05, 8, 0.5
LOOK_SECONDS = 1.0
# How often it is asked whether a store has come back older than it was.
WATCH_SECONDS = 5.0
SHOW_SECONDS = 60.0
MAX_PAUSE = 5.0
# After an outage the workers' heartbeats come back one by one, and one from before the store's clock was set forward is
# an old one; no worker is declared dead before it had time to beat again.
STEADY_SECONDS = 10.0


class Command(BaseCommand):
    """Settle until told to stop."""

    help = "Write finished requests to the log and the ledger."
    # Those of the settings. All others are of the code: to make them, every view and page would be loaded.
    requires_system_checks = ("settings",)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT."""
        self._stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        # Two containers may have one name and the same process id.
        reader = f"{socket.gethostname()}:{getpid()}:{token_hex(4)}"
        pause, next_look, next_show, next_watch, steady_since = 0.0, 0.0, 0.0, 0.0, time.monotonic()
        clock, watch, outbox_reader = StoreClocks(), LedgerWatch(), OutboxReader(reader)
        log.info("settler.started", reader=reader)
        while not self._stopping:
            try:
                missed: RedisError | None = None
                if time.monotonic() >= next_watch:
                    shards.require()
                    missed = _look(watch)
                    next_watch = 0.0 if missed else time.monotonic() + WATCH_SECONDS
                if settled := _step(outbox_reader):
                    pause = 0.0
                if missed is not None:
                    raise missed
                time.sleep(gather_after(settled))
                if time.monotonic() >= next_look:
                    _measure_queue()
                    if clock.was_set():
                        steady_since = time.monotonic()
                    if time.monotonic() - steady_since >= STEADY_SECONDS:
                        sweep()
                    next_look = time.monotonic() + LOOK_SECONDS
                if time.monotonic() >= next_show:
                    update_metrics()
                    clearing.update_metrics()
                    bill_metrics.update_metrics()
                    outbox.forget_readers()
                    next_show = time.monotonic() + SHOW_SECONDS
                pause = 0.0
            except OtherShards as error:
                raise CommandError(str(error)) from error
            # OSError: neither the store nor the disk took the swept records, whose notes stay.
            except (RedisError, DatabaseError, InterfaceError, OSError) as error:
                # Entries already taken stay assigned to this reader in the stream, and are taken again.
                pause = min(max(pause * 2, 0.1), MAX_PAUSE)
                log.warning("settler.waiting", **_awaited(error), seconds=round(pause, 1))
                connection.close()
                outbox_reader.search_again()
                time.sleep(pause)
                steady_since = time.monotonic()
        log.info("settler.stopped")

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True


def _awaited(error: Exception) -> dict[str, str]:
    """Return what the log says of who is waited for, and why."""
    if isinstance(error, RedisError):
        return {"waits_for": f"REDIS_URL {address_of(settings.REDIS_URL)}", "error": type(error).__name__}
    if isinstance(error, DatabaseError | InterfaceError):
        known = settings.DATABASES["default"]
        place = f"{known.get('HOST') or 'localhost'}:{known.get('PORT') or 5432}/{known.get('NAME')}"
        return {"waits_for": f"DATABASE_URL {place}", "error": type(error).__name__}
    return {"waits_for": "a store or the disk", "error": type(error).__name__}


def _look(watch: LedgerWatch) -> RedisError | None:
    """Compare the store with the ledger; return what kept it from that where other shards can be settled meanwhile.

    Raises DatabaseError, and RedisError where there are no others.
    """
    try:
        watch.look()
    except RedisError as error:
        if SHARD_COUNT == 1:
            raise
        return error
    return None


def _step(reader: OutboxReader) -> int:
    """Settle a batch; return of how many records."""
    messages = reader.read(BATCH, WAIT_MS)
    if messages:
        settle(messages)
    return len(messages)


def gather_after(count: int) -> float:
    """Return for how many seconds to let records gather after a batch of so many."""
    if not count or count >= BATCH:
        return 0.0
    return GATHER_SECONDS if count >= MANY else PAUSE_SECONDS


def _measure_queue() -> None:
    depth, age = outbox.depth()
    QUEUE_DEPTH.set(depth)
    QUEUE_AGE.set(age)
