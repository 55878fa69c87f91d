"""Database timeouts: how long the current work waits for a connection and for answers; `database.py` enforces them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class DatabaseTimeouts:
    """Timeouts of one piece of work: seconds for a connection, and seconds of silence in all its statements."""

    __slots__ = ("connection", "silence")

    def __init__(self, connection: float, silence: float) -> None:
        self.connection, self.silence = connection, silence

    def is_over(self, seconds: float) -> bool:
        """Record seconds without data; return whether the timeout has passed."""
        self.silence -= seconds
        return self.silence <= 0


_patience: ContextVar[DatabaseTimeouts | None] = ContextVar("database_patience", default=None)


def current_timeouts() -> DatabaseTimeouts | None:
    """Return the timeouts of the current work; None for the defaults."""
    return _patience.get()


@contextmanager
def apply_timeouts(to: DatabaseTimeouts | None) -> Iterator[None]:
    """Apply timeouts to database work in the block, which raises OperationalError when they pass.

    None restores the defaults, for work that starts here and continues afterwards, because greenlets inherit timeouts.
    """
    token = _patience.set(to)
    try:
        yield
    finally:
        _patience.reset(token)
