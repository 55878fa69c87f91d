"""Metrics of scheduled tasks, kept in Redis where every process can read them.

For each task: runs, failures, time and the last success. A failing metric never fails a task.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from apps.kernel.valkey.redis import client

log = structlog.get_logger(__name__)

# A hash: `<task> <what>` -> a number.
_KEY = "tasks"
_RUNS, _FAILURES, _SECONDS, _SUCCEEDED_AT, _PLANNED_AT = "runs", "failures", "seconds", "succeeded_at", "planned_at"
_PERIOD = "period"
# A task is late when it has not succeeded for so many of its periods, and seconds besides: it may be running.
_LATE_PERIODS, _LATE_SECONDS = 2, 60


@dataclass(frozen=True, slots=True)
class TaskState:
    """How a scheduled task does; `age` is seconds since its last success, else since it was scheduled."""

    name: str
    runs: int
    failures: int
    age: float
    succeeded: bool
    late: bool


def plan(periods: Mapping[str, float]) -> None:
    """Take down that these tasks are scheduled, and how many seconds there are from one run to the next.

    One that never succeeds is then as old as the schedule.
    """
    now = time.time()
    try:
        with client().pipeline(transaction=False) as pipeline:
            for name, period in periods.items():
                pipeline.hsetnx(_KEY, f"{name} {_PLANNED_AT}", str(now))
                pipeline.hset(_KEY, f"{name} {_PERIOD}", str(period))
            pipeline.execute()
    except RedisError as error:
        log.warning("tasks.not_counted", error=type(error).__name__)


def read_states() -> list[TaskState]:
    """Return the state of every scheduled task, by name. Raises RedisError."""
    now, states = time.time(), []
    for name, numbers in sorted(_numbers().items()):
        since, period = numbers.get(_SUCCEEDED_AT, numbers.get(_PLANNED_AT)), numbers.get(_PERIOD)
        if since is None or period is None:
            continue
        age = max(0.0, now - since)
        late = age > _LATE_PERIODS * period + _LATE_SECONDS
        runs, failures = int(numbers.get(_RUNS, 0)), int(numbers.get(_FAILURES, 0))
        states.append(TaskState(name, runs, failures, age, _SUCCEEDED_AT in numbers, late))
    return states


def exposition() -> bytes:
    """Return what there is to tell in Prometheus' format; nothing while the store is away."""
    return generate_latest(_REGISTRY)


def count(name: str, seconds: float, *, succeeded: bool) -> None:
    """Take down a run of a task, which took so many seconds."""
    try:
        with client().pipeline(transaction=False) as pipeline:
            pipeline.hincrby(_KEY, f"{name} {_RUNS}", 1)
            pipeline.hincrbyfloat(_KEY, f"{name} {_SECONDS}", round(seconds, 6))
            if succeeded:
                pipeline.hset(_KEY, f"{name} {_SUCCEEDED_AT}", str(time.time()))
            else:
                pipeline.hincrby(_KEY, f"{name} {_FAILURES}", 1)
            pipeline.execute()
    except RedisError as error:
        log.warning("tasks.not_counted", task=name, error=type(error).__name__)


class _Tasks(Collector):
    """The numbers of all tasks, read when they are asked for."""

    def collect(self) -> Iterator[Metric]:
        """Yield each number for every task that has run or is scheduled."""
        runs = CounterMetricFamily("gateway_task_runs", "Runs of scheduled tasks", labels=["task"])
        failures = CounterMetricFamily("gateway_task_failures", "Runs that failed", labels=["task"])
        seconds = CounterMetricFamily("gateway_task_seconds", "Time that runs took", labels=["task"])
        age = GaugeMetricFamily(
            "gateway_task_success_age_seconds", "Time since the last success, else since scheduled", labels=["task"]
        )
        now = time.time()
        for name, numbers in sorted(_read().items()):
            runs.add_metric([name], numbers.get(_RUNS, 0.0))
            failures.add_metric([name], numbers.get(_FAILURES, 0.0))
            seconds.add_metric([name], numbers.get(_SECONDS, 0.0))
            since = numbers.get(_SUCCEEDED_AT, numbers.get(_PLANNED_AT))
            if since is not None:
                age.add_metric([name], max(0.0, now - since))
        yield from (runs, failures, seconds, age)


def _read() -> dict[str, dict[str, float]]:
    """Return the numbers by task; none while the store is away."""
    try:
        return _numbers()
    except RedisError as error:
        log.warning("tasks.not_read", error=type(error).__name__)
        return {}


def _numbers() -> dict[str, dict[str, float]]:
    """Return the numbers by task. Raises RedisError."""
    found: dict[str, dict[str, float]] = {}
    for field, number in client().hgetall(_KEY).items():
        name, _, what = str(field).rpartition(" ")
        found.setdefault(name, {})[what] = float(number)
    return found


_REGISTRY = CollectorRegistry(auto_describe=False)
_REGISTRY.register(_Tasks())
