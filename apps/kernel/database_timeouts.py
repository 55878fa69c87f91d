"""Database timeouts: how long the work at hand waits for a connection, and for the answers to its statements.

Knows patience alone. What keeps to it is the connection (`database.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class DatabaseTimeouts:
    """How long one piece of work may wait: seconds for a connection, and seconds of silence in all its statements."""

    __slots__ = ("connection", "silence")

    def __init__(self, connection: float, silence: float) -> None:
        self.connection, self.silence = connection, silence

    def is_over(self, seconds: float) -> bool:
        """Take note that nothing came for so many seconds more; return whether it is no use to wait on."""
        self.silence -= seconds
        return self.silence <= 0


_patience: ContextVar[DatabaseTimeouts | None] = ContextVar("database_patience", default=None)


def current_timeouts() -> DatabaseTimeouts | None:
    """Return what holds for the work at hand; None where nothing but the usual does."""
    return _patience.get()


@contextmanager
def apply_timeouts(to: DatabaseTimeouts | None) -> Iterator[None]:
    """Let database work within the block wait no longer than this; past it, it raises OperationalError.

    With None the usual holds: for what is begun here and goes on afterwards, since greenlets inherit what holds.
    """
    token = _patience.set(to)
    try:
        yield
    finally:
        _patience.reset(token)
