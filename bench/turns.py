"""The gateway and its rivals by turns, and by turns with the bare upstream at an easy pace.

A virtual machine's pace changes within minutes, and rows that are measured minutes apart differ by that as well. Here
everybody runs at the same time and is asked in short rounds, one after the other; what counts is the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin
from bench.subjects import Subject, gateway, litellm, portkey

_ROUNDS, _CONNECTIONS = 5, 32
Row = dict[str, Any]


def by_turns(
    fixed: Subject,
    folder: Path,
    cache: Path | None,
    seconds: float,
    calm_share: float,
    settle: Callable[[Subject], Any],
) -> Iterator[Row]:
    """Yield a row for each of those that can be had, then one of what the gateway adds at a share of its own load.

    Without a `cache` for rivals there are none.
    """
    print("measuring by turns ", end="", flush=True)
    with ExitStack() as running:
        ours = running.enter_context(gateway(fixed.port, folder / "turns"))
        assert ours.product is not None
        pin([ours.product.pid, *fixed.workers], OTHERS)
        subjects = [ours]
        if cache is not None:
            rivals: list[AbstractContextManager[Subject]] = [
                portkey(fixed.port, cache),
                litellm(fixed.port, cache, folder),
            ]
            for rival in rivals:
                try:
                    subjects.append(running.enter_context(rival))
                except (OSError, AssertionError) as error:
                    print(f"left out: {error}", flush=True)
        for subject in subjects:
            pin(subject.workers, MEASURED)
        rounds: dict[str, list[Row]] = {subject.name: [] for subject in subjects}
        # The first is to get warm.
        for number in range(_ROUNDS + 1):
            for subject in list(subjects):
                settle(ours)
                try:
                    row = _round(subject, seconds)
                except ChildProcessError as error:
                    subjects.remove(subject)
                    print(f"left out from here on: {error}", flush=True)
                else:
                    rounds[subject.name] += [row] if number else []
        rounds = {name: rows for name, rows in rounds.items() if rows}
        for name, rows in rounds.items():
            figures = {figure: median(row[figure] for row in rows) for figure in ("per_second", "cpu_ms", "p99_ms")}
            failures = sum(row["failures"] for row in rows)
            yield {"what": name, "kind": "turns", "connections": _CONNECTIONS, **figures, "failures": failures}
        settle(ours)
        rate = median(row["per_second"] for row in rounds[ours.name]) * calm_share
        windows = [(_round(fixed, seconds, rate), _round(ours, seconds, rate)) for _ in range(_ROUNDS)]
    print(flush=True)
    yield {
        "what": ours.name,
        "kind": "easy",
        "rate": rate,
        "windows": len(windows),
        "cpu_ms": median(row["cpu_ms"] for _, row in windows),
        "added_p50_ms": median(row["p50_ms"] - base["p50_ms"] for base, row in windows),
        "added_p99_ms": median(row["p99_ms"] - base["p99_ms"] for base, row in windows),
    }


def _round(subject: Subject, seconds: float, rate: float | None = None) -> Row:
    before = sum(map(cpu_seconds, subject.workers))
    figures = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds, rate=rate)
    print(".", end="", flush=True)
    return {**figures, "cpu_ms": (sum(map(cpu_seconds, subject.workers)) - before) / figures["requests"] * 1000}
