"""Rate limiter by client address, a token bucket each: a flood of sign-ins is rejected before its bodies are read.

The limit does not depend on whether a try succeeded. The exact count over all workers is in
`apps.organizations.credentials.attempt_rate_limiter`, where passwords are checked; this limiter allows at least as
much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from apps.kernel.errors import RateLimited

# Tries at once, and tries that come back each second.
_BURST, _PER_SECOND = 60.0, 1.0
# Addresses that are remembered; beyond them the one that was quiet for longest is forgotten.
_MAX_ADDRESSES = 20_000


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
        if len(self._buckets) > _MAX_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        if not allowed:
            raise RateLimited("Too many attempts; try again later", retry_after=(1 - left) / _PER_SECOND)
