"""Record backlog (backpressure): records that neither store nor disk accepts, retried from memory until one does.

While any record waits here its worker takes no new request: what has been let in already bounds the memory. Other
processes learn of it by an exclusive lock, which takes no room on a disk that has none, and goes with the process. They
look with a shared lock, so that they never see one another.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import gevent
import structlog
from django.conf import settings

from apps.gateway.metrics import RECORDS_IN_MEMORY, UNRECORDABLE
from apps.kernel.errors import Overloaded
from apps.kernel.secrets.encryption import encrypt

log = structlog.get_logger(__name__)

# Seconds between tries, at first and at most.
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 2.0
RETRY_AFTER = 5.0


class BackloggedRecord(NamedTuple):
    """A record, and the callable that pushes it again, which raises as long as neither store nor disk accepts it."""

    push: Callable[[], None]
    record: bytes


class RecordBacklog:
    """The records of one process that wait in memory, oldest first."""

    def __init__(self) -> None:
        self.waiting: deque[BackloggedRecord] = deque()
        self._greenlet: gevent.Greenlet[..., None] | None = None
        self._lock: int | None = None

    def raise_if_backlogged(self) -> None:
        """Raise Overloaded (backpressure) while any record waits: the next might not be stored either."""
        if self.waiting:
            UNRECORDABLE.inc()
            raise Overloaded(
                "The gateway cannot store records of requests right now; try again shortly", retry_after=RETRY_AFTER
            )

    def add(self, push: Callable[[], None], record: bytes, reason: str) -> None:
        """Keep a record, and try it again in the background."""
        if not self.waiting:
            log.error("records.waiting", error=reason)
        self._tell()
        self.waiting.append(BackloggedRecord(push, record))
        RECORDS_IN_MEMORY.set(len(self.waiting))
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._keep_trying)

    def retry(self) -> bool:
        """Push the waiting records, in order, up to the first that is not taken; return whether none waits any more."""
        while self.waiting:
            try:
                self.waiting[0].push()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                log.info("records.still_waiting", error=type(error).__name__, records=len(self.waiting))
                self._tell()
                return False
            # Only now: who is ended in the middle must not take it along. It may be pushed twice, which is as good.
            self.waiting.popleft()
            RECORDS_IN_MEMORY.set(len(self.waiting))
        self._withdraw()
        return True

    def drain(self) -> None:
        """Wait until nothing waits any more."""
        if self._greenlet is not None:
            self._greenlet.join()

    def dump_to_log(self) -> None:
        """Write what still waits, encrypted, to the log of a process that ends: an operator can push it from there."""
        while self.waiting:
            record = self.waiting.popleft().record
            log.error("records.left_to_the_log", sealed=encrypt(record).decode())
        self._withdraw()

    def _keep_trying(self) -> None:
        pause = _FIRST_PAUSE
        while not self.retry():
            gevent.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)
        self._greenlet = None
        log.warning("records.stored")

    def _tell(self) -> None:
        """Let other processes know, unless they do."""
        if self._lock is not None:
            return
        # Another tells already, or looks just now: the next try tells once it has ended.
        with suppress(OSError):
            lock = _open()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                raise
            self._lock = lock

    def _withdraw(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def prepare() -> None:
    """Make the file whose lock tells, while there is room for its name. Raises OSError."""
    os.close(_open())


def is_any_process_backlogged() -> bool:
    """Tell whether any process of this home has records that it cannot store."""
    if BACKLOG.waiting:
        return True
    try:
        descriptor = _open()
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open() -> int:
    path = Path(settings.GATEWAY_HOME) / "run" / "records-waiting"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


BACKLOG = RecordBacklog()
