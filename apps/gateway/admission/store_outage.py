"""Store outage: when the store stopped answering this process, why, and when the outage is over.

Logged once at its beginning (an error, which an operator should look at) and once at its end.
"""

from __future__ import annotations

import time

import structlog
from redis.exceptions import (
    BusyLoadingError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.gateway.metrics.definitions import STORE_SILENT

log = structlog.get_logger(__name__)

# The store's own words for refusing to work; whatever else it says is `refused`.
_WORDS = frozenset({"OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "BUSY", "MASTERDOWN", "NOPERM", "NOAUTH"})
OUTAGE_REASONS = ("timeout", "unreachable", "refused", *(word.lower() for word in sorted(_WORDS)))
_CLASSES = ((OutOfMemoryError, "oom"), (ReadOnlyError, "readonly"), (BusyLoadingError, "loading"))


def outage_reason(error: RedisError) -> str:
    """Return why there was no answer, in a word: `timeout`, `unreachable`, `refused` or the store's own in lower case.

    All of them are the same to a request: it has no confirmation that it is covered.
    """
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    if isinstance(error, RedisTimeoutError):
        return "timeout"
    if isinstance(error, ResponseError):
        word = str(error).partition(" ")[0]
        return word.lower() if word in _WORDS else "refused"
    return "unreachable"


class StoreOutage:
    """This process's view of it. One that flickers is one outage: it is over once a heartbeat came through and nothing
    failed since the one before."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget any outage, as at the start."""
        self.began_at: float | None = None
        self.ended_at = 0.0
        self.admitted = self.refused = 0
        self._failed_since_beat = False

    def record_failure(self, reason: str) -> None:
        """Note that a request was not answered."""
        self._failed_since_beat = True
        if self.began_at is None:
            self.began_at, self.admitted, self.refused = time.monotonic(), 0, 0
            STORE_SILENT.set(1)
            log.error("store.outage_began", reason=reason)

    def record_heartbeat(self) -> None:
        """Note that the store took a heartbeat, which it does where it takes reservations."""
        failed, self._failed_since_beat = self._failed_since_beat, False
        if failed or self.began_at is None:
            return
        self.ended_at = time.monotonic()
        seconds, self.began_at = round(self.ended_at - self.began_at, 1), None
        STORE_SILENT.set(0)
        log.info("store.outage_ended", seconds=seconds, admitted=self.admitted, refused=self.refused)

    def is_over_for(self, seconds: float) -> bool:
        """Whether there is none, and was none for so long."""
        return self.began_at is None and time.monotonic() - self.ended_at >= seconds


OUTAGE = StoreOutage()
