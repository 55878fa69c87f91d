"""Hashing passwords without holding up everyone else.

Knows how to spend a third of a second of CPU in a thread of its own. Must never know who the password belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gevent
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX, check_password, make_password

T = TypeVar("T")


def hash_of(password: str) -> str:
    """Return the password as it is stored."""
    return _in_a_thread(lambda: make_password(password))


def matches(password: str, stored: str | None) -> bool:
    """Tell whether this is the password; with nothing stored it takes as long to say no."""
    return _in_a_thread(lambda: check_password(password, stored or UNUSABLE_PASSWORD_PREFIX))


def _in_a_thread(work: Callable[[], T]) -> T:
    """Run the work in a native thread: a worker's other requests share one thread, and go on meanwhile."""
    return gevent.get_hub().threadpool.apply(work)
