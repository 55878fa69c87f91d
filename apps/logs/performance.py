"""Performance: a roll-up of how providers answer each model, in slots of an hour and a day.

Each log entry carries the outcome of every provider call, as the circuit breaker counts it (`ProviderOutcome`). As in
`traffic`, a batch of entries appends deltas in its transaction, and a fold moves them into slots in one statement, so
slots and deltas together are always exact. Times and speeds are counted in steps of a logarithmic scale; no request can
be found in them, and they name no organization.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import log2
from typing import Any, Final

from django.db import connections

from apps.kernel.ids import time_of
from apps.kernel.postgres.replica import PRIMARY
from apps.logs.entry import Entry
from apps.logs.models import PerformanceCounts, PerformanceDelta, PerformanceSlot
from apps.logs.rollup import SLOT_ORIGIN, SlotRollup, Sum
from apps.logs.traffic import STEPS_PER_DOUBLING, TrafficWindow, percentile_of

# The first step that has a count of its own, and how many steps there are: 16 ms to 131 s, 1 to 4,096 tokens a second.
# Smaller and larger values count in the first and the last one.
FIRST_TOKEN_STEPS: Final = (16, 52)
SPEED_STEPS: Final = (0, 48)
# Retention of slots by their minutes.
KEPT: Final = {60: timedelta(days=8), 1440: timedelta(days=90)}
WINDOWS: Final = {
    one.name: one
    for one in (
        TrafficWindow("24h", "24 hours", 24, timedelta(hours=1), 60),
        TrafficWindow("7d", "7 days", 28, timedelta(hours=6), 60),
        TrafficWindow("30d", "30 days", 30, timedelta(days=1), 1440),
    )
}
_SLOTS, _DELTAS = PerformanceSlot._meta.db_table, PerformanceDelta._meta.db_table


@dataclass(slots=True)
class Performance:
    """Outcomes of a model's calls at one provider.

    `first_tokens` and `speeds` are counts by step: of milliseconds to the first token of streamed answers, and of
    output tokens a second.
    """

    succeeded: int = 0
    failed: int = 0
    first_tokens: dict[int, int] = field(default_factory=dict)
    speeds: dict[int, int] = field(default_factory=dict)

    @property
    def uptime(self) -> float | None:
        """The share of calls that succeeded; None without calls."""
        calls = self.succeeded + self.failed
        return self.succeeded / calls if calls else None

    @property
    def first_token(self) -> float | None:
        """The median time to the first token in milliseconds, to 10 %."""
        return percentile_of(self.first_tokens, 0.5)

    @property
    def slow_first_token(self) -> float | None:
        """The 95th percentile of the time to the first token in milliseconds, to 10 %."""
        return percentile_of(self.first_tokens, 0.95)

    @property
    def speed(self) -> float | None:
        """The median of output tokens a second, to 10 %."""
        return percentile_of(self.speeds, 0.5)

    def add(self, other: Performance) -> None:
        """Add the outcomes of another time or provider."""
        self.succeeded += other.succeeded
        self.failed += other.failed
        for mine, others in ((self.first_tokens, other.first_tokens), (self.speeds, other.speeds)):
            for step, count in others.items():
                mine[step] = mine.get(step, 0) + count


@dataclass(slots=True)
class ProviderPerformance:
    """A model's performance at one provider: in total, and by the starts of a window's bars that have calls."""

    total: Performance = field(default_factory=Performance)
    bars: dict[datetime, Performance] = field(default_factory=dict)


def append_deltas(entries: Iterable[Entry]) -> None:
    """Append the outcomes of entries, in the transaction that adds them to the log. Raises DatabaseError."""
    deltas: dict[tuple[datetime, str, str], PerformanceDelta] = {}
    for entry in entries:
        hour = time_of(entry.id).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        for outcome in entry.outcomes or ():
            key = (hour, outcome.model[:255], outcome.provider[:80])
            delta = deltas.get(key) or deltas.setdefault(key, _new_delta(*key))
            if not outcome.succeeded:
                delta.failed += 1
                continue
            delta.succeeded += 1
            if outcome.first_token is not None:
                delta.first_token_steps[_place(outcome.first_token, *FIRST_TOKEN_STEPS)] += 1
            if outcome.tokens > 0 and outcome.writing > 0:
                delta.speed_steps[_place(outcome.tokens * 1000 / outcome.writing, *SPEED_STEPS)] += 1
    # In one order, as all writers of the log.
    PerformanceDelta.objects.bulk_create([deltas[key] for key in sorted(deltas)])


def _new_delta(hour: datetime, model: str, provider: str) -> PerformanceDelta:
    return PerformanceDelta(
        starts_at=hour,
        model=model,
        provider=provider,
        first_token_steps=[0] * FIRST_TOKEN_STEPS[1],
        speed_steps=[0] * SPEED_STEPS[1],
    )


def _place(value: float, first: int, count: int) -> int:
    """Return the place of a value in an array of steps."""
    return min(max(int(STEPS_PER_DOUBLING * log2(max(value, 1))) - first, 0), count - 1)


def _array(expression: str, name: str, count: int) -> str:
    """Return an array of an expression of each element, such as `sum({0})`."""
    elements = ", ".join(expression.format(f"{name}[{place}]") for place in range(1, count + 1))
    return f"ARRAY[{elements}]::bigint[]"


_ARRAYS: Final = {"first_token_steps": FIRST_TOKEN_STEPS[1], "speed_steps": SPEED_STEPS[1]}
_SUMS: Final = {
    name: Sum(f"sum({name})::bigint", f"slot.{name} + excluded.{name}") for name in ("succeeded", "failed")
} | {
    name: Sum(_array("sum({0})", name, count), _array("slot.{0} + excluded.{0}", name, count))
    for name, count in _ARRAYS.items()
}
_ROLLUP: Final = SlotRollup(PerformanceSlot, PerformanceDelta, ("model", "starts_at", "provider"), _SUMS, KEPT)
fold, expire = _ROLLUP.fold, _ROLLUP.expire
_COUNTS: Final = ", ".join(_SUMS)
_TOTALS: Final = ", ".join(f"{one.of_group} AS {name}" for name, one in _SUMS.items())
_QUESTION: Final = f"""
    SELECT model, provider, date_bin(%(bar)s, starts_at, {SLOT_ORIGIN}) AS bar, {_TOTALS}
    FROM (
        SELECT model, provider, starts_at, {_COUNTS} FROM {_SLOTS}
        WHERE minutes = %(minutes)s AND model = ANY(%(models)s) AND starts_at >= %(first)s
        UNION ALL
        SELECT model, provider, starts_at, {_COUNTS} FROM {_DELTAS}
        WHERE model = ANY(%(models)s) AND starts_at >= %(first)s
    ) AS added
    GROUP BY model, provider, bar ORDER BY model, provider, bar
"""  # noqa: S608 - names are ours


def read_performance(
    models: Collection[str], window: TrafficWindow, now: datetime, using: str = PRIMARY
) -> dict[str, dict[str, ProviderPerformance]]:
    """Return the performance of models by model and provider; those without calls are missing. Raises DatabaseError."""
    found: dict[str, dict[str, ProviderPerformance]] = {}
    asked: dict[str, Any] = {
        "bar": window.bar,
        "minutes": window.slot_minutes,
        "models": list(models),
        "first": window.first(now),
    }
    with connections[using].cursor() as cursor:
        cursor.execute(_QUESTION, asked)
        for model, provider, bar, succeeded, failed, first_tokens, speeds in cursor.fetchall():
            counted = Performance(
                succeeded, failed, _by_step(first_tokens, FIRST_TOKEN_STEPS[0]), _by_step(speeds, SPEED_STEPS[0])
            )
            one = found.setdefault(model, {}).setdefault(provider, ProviderPerformance())
            one.bars[bar] = counted
            one.total.add(counted)
    return found


def performance_of(row: PerformanceCounts) -> Performance:
    """Return the performance of a slot or delta alone."""
    return Performance(
        row.succeeded,
        row.failed,
        _by_step(row.first_token_steps, FIRST_TOKEN_STEPS[0]),
        _by_step(row.speed_steps, SPEED_STEPS[0]),
    )


def _by_step(counts: Sequence[int], first: int) -> dict[int, int]:
    return {first + place: count for place, count in enumerate(counts) if count}
