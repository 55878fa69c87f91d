"""Password hashing on native threads of its own, so that the event loop goes on and sign-in waits for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX, check_password, make_password

from apps.kernel.concurrency.native_thread_pool import NativeThreadPool

T = TypeVar("T")

# Each takes a third of a second of a processor.
_THREADS: Final = NativeThreadPool(4)
# Seconds that a password may wait for a thread.
_PATIENCE: Final = 20.0


def hash_of(password: str) -> str:
    """Return the password as it is stored."""
    return _in_a_thread(lambda: make_password(password))


def matches(password: str, stored: str | None) -> bool:
    """Tell whether this is the password; with nothing stored it takes as long to say no."""
    return _in_a_thread(lambda: check_password(password, stored or UNUSABLE_PASSWORD_PREFIX))


def _in_a_thread(work: Callable[[], T]) -> T:
    """Run the work on a thread of the pool. Raises Overloaded when too many passwords are being checked."""
    return _THREADS.run(work, patience=_PATIENCE, refusal="Too many sign-ins at once; try again shortly")
