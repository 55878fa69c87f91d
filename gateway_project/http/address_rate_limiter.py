"""A token bucket for each client address: a flood of sign-ins is refused before its bodies are read.

Knows addresses and time. Must never know whether a try succeeded; the exact count over all workers is kept where
passwords are checked (`apps.organizations.attempt_rate_limiter`), and what that count allows, this one allows too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from apps.kernel.errors import RateLimited

# Tries at once, and tries that come back each second.
_BURST, _PER_SECOND = 60.0, 1.0
# Addresses that are remembered; beyond them the one that was quiet for longest is forgotten.
_MOST_ADDRESSES = 20_000


class AddressRateLimiter:
    """The buckets of one worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By address, the one that tried last at the end: tokens left, and when they were counted.
        self._buckets: dict[str, tuple[float, float]] = {}

    def count_try(self, address: str) -> None:
        """Take a token from the address's bucket. Raises RateLimited when there is none."""
        now = self._clock()
        left, since = self._buckets.pop(address, (_BURST, now))
        left = min(_BURST, left + (now - since) * _PER_SECOND)
        allowed = left >= 1
        self._buckets[address] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MOST_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        if not allowed:
            raise RateLimited("Too many attempts; try again later", retry_after=(1 - left) / _PER_SECOND)
