"""Provider statistics: uptime, latency (time to the first token) and throughput of a model at a provider. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

# Upper bounds in milliseconds of the classes that times to the first token are counted in; the last has none.
_LATENCY_BOUNDS = (
    50,
    75,
    100,
    150,
    200,
    300,
    400,
    600,
    800,
    1200,
    1600,
    2400,
    3200,
    5000,
    8000,
    12_000,
    20_000,
    40_000,
    60_000,
)
# Fewer answers than this say nothing about how late is late.
_ENOUGH_FOR_P95 = 20


class ProviderStats(msgspec.Struct, frozen=True, kw_only=True):
    """The last five minutes. `uptime` in percent (100 with no traffic), `latency` and `p95_latency` in milliseconds to
    the first token (average, 95th percentile), `throughput` in tokens per second; None where nothing is known.

    `fresh` is how many of the requests were in the last half minute. `open`: it keeps failing and gets no requests, but
    for one when `probe_due`.
    """

    requests: int = 0
    fresh_requests: int = 0
    uptime: float = 100.0
    latency: float | None = None
    throughput: float | None = None
    p95_latency: float | None = None
    open: bool = False
    probe_due: bool = False


NO_TRAFFIC = ProviderStats()


class OutcomeCounts(msgspec.Struct):
    """Outcomes of calls of a mapping in some stretch of time. Times are milliseconds."""

    succeeded: int = 0
    failed: int = 0
    # Failures that only one tenant saw, and that its requests may have caused: they count in the uptime, no further.
    unproven: int = 0
    first_tokens: int = 0
    first_token_ms: int = 0
    tokens: int = 0
    writing_ms: int = 0
    steps: list[int] = msgspec.field(default_factory=lambda: [0] * (len(_LATENCY_BOUNDS) + 1))

    @property
    def total(self) -> int:
        """How many requests ended there, well or not."""
        return self.succeeded + self.failed + self.unproven

    def add_success(self, first_token_ms: int | None, tokens: int, seconds: float) -> None:
        """Count an answer."""
        self.succeeded += 1
        if first_token_ms is not None:
            self.first_tokens += 1
            self.first_token_ms += first_token_ms
            self.steps[bisect_left(_LATENCY_BOUNDS, first_token_ms)] += 1
        if tokens and seconds > 0:
            self.tokens += tokens
            self.writing_ms += max(round(seconds * 1000), 1)

    def add(self, other: OutcomeCounts) -> None:
        """Add the outcomes of another process, or of another time."""
        for name in ("succeeded", "failed", "unproven", "first_tokens", "first_token_ms", "tokens", "writing_ms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.steps = [one + more for one, more in zip(self.steps, other.steps, strict=True)]

    def nonzero_fields(self) -> Iterator[tuple[str, int]]:
        """Yield each count that is not 0 by its short name, as the store keeps it."""
        for name, short in _SHORT.items():
            if number := getattr(self, name):
                yield short, number
        for step, number in enumerate(self.steps):
            if number:
                yield str(step), number

    def add_field(self, short: str, number: int) -> None:
        """Add a count by its short name; unknown names, of another version, are ignored."""
        if short in _LONG:
            setattr(self, _LONG[short], getattr(self, _LONG[short]) + number)
        elif short.isdigit() and int(short) < len(self.steps):
            self.steps[int(short)] += number


_SHORT = {
    "succeeded": "ok",
    "failed": "no",
    "unproven": "un",
    "first_tokens": "ft",
    "first_token_ms": "ftms",
    "tokens": "tk",
    "writing_ms": "tkms",
}
_LONG = {short: name for name, short in _SHORT.items()}


def compute_stats(counts: OutcomeCounts, fresh: int = 0) -> ProviderStats:
    """Return the statistics of counts."""
    asked = counts.total
    return ProviderStats(
        requests=asked,
        fresh_requests=fresh,
        uptime=100.0 * counts.succeeded / asked if asked else 100.0,
        latency=counts.first_token_ms / counts.first_tokens if counts.first_tokens else None,
        throughput=counts.tokens / counts.writing_ms * 1000 if counts.writing_ms else None,
        p95_latency=_p95(counts.steps),
    )


def _p95(steps: list[int]) -> float | None:
    """Return the upper bound of the class that the 95th percentile falls into."""
    total = sum(steps)
    if total < _ENOUGH_FOR_P95:
        return None
    seen = 0
    for step, number in enumerate(steps[:-1]):
        seen += number
        if seen >= 0.95 * total:
            return float(_LATENCY_BOUNDS[step])
    return float(_LATENCY_BOUNDS[-1])
