"""The gateway and its rivals by turns, and by turns with the bare upstream at an easy pace.

A virtual machine's pace changes within minutes, and rows that are measured minutes apart differ by that as well. Here
everybody runs at the same time and is asked in short rounds, one after the other; what counts is the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from bench import peer_servers
from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin, resident_mb
from bench.subjects import Kind, Subject, gateway, litellm, portkey

_ROUNDS, _CONNECTIONS = 5, 32
Row = dict[str, Any]


class LoadTurn(NamedTuple):
    """A load that all servers get in turn: a kind of request, over so many connections."""

    kind: Kind
    connections: int

    @property
    def name(self) -> str:
        """The name in the report."""
        return f"{self.kind}, {self.connections} connection{'s' if self.connections > 1 else ''}"


TURNS: Final = (
    LoadTurn("plain", _CONNECTIONS),
    LoadTurn("agent", _CONNECTIONS),
    LoadTurn("stream", 50),
    LoadTurn("plain", 1),
)


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
                _tensorzero(fixed.port, cache, folder),
            ]
            for rival in rivals:
                try:
                    subjects.append(running.enter_context(rival))
                except (OSError, AssertionError) as error:
                    print(f"left out: {error}", flush=True)
        for subject in subjects:
            pin(subject.workers, MEASURED)
        plain: list[Row] = []
        for turn in TURNS:
            for row in _in_turn(turn, subjects, seconds, lambda: settle(ours)):
                plain += [row] if row["what"] == ours.name and turn == TURNS[0] else []
                yield row
        settle(ours)
        rate = plain[0]["per_second"] * calm_share
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


@contextmanager
def _tensorzero(port: int, cache: Path, folder: Path) -> Iterator[Subject]:
    peer_servers.install(cache)
    with peer_servers.tensorzero(port, cache, folder) as subject:
        yield subject


def _in_turn(turn: LoadTurn, subjects: list[Subject], seconds: float, settle: Callable[[], Any]) -> Iterator[Row]:
    """Yield a row for each server that serves the load, of the medians of its rounds."""
    rounds: dict[str, list[Row]] = {subject.name: [] for subject in subjects}
    remaining = list(subjects)
    # The first is to get warm.
    for number in range(_ROUNDS + 1):
        for subject in list(remaining):
            settle()
            try:
                row = _round(subject, seconds, turn=turn)
                if row["failures"]:
                    raise ChildProcessError(f"{row['failures']:.0f} of {row['requests']:.0f} requests failed")
            except ChildProcessError as error:
                remaining.remove(subject)
                rounds[subject.name].clear()
                print(f"{turn.name}: {subject.name} left out: {error}", flush=True)
            else:
                rounds[subject.name] += [row] if number else []
    figures = ("per_second", "cpu_ms", "p50_ms", "p99_ms", "first_byte_p50_ms", "memory_mb")
    for name, rows in rounds.items():
        if rows:
            medians = {figure: median(row[figure] for row in rows) for figure in figures}
            yield {"what": name, "kind": "turns", "turn": turn.name, "connections": turn.connections, **medians}


def _round(subject: Subject, seconds: float, rate: float | None = None, turn: LoadTurn = TURNS[0]) -> Row:
    before = sum(map(cpu_seconds, subject.workers))
    figures = load(subject, turn.kind, connections=turn.connections, seconds=seconds, rate=rate)
    print(".", end="", flush=True)
    return {
        **figures,
        "cpu_ms": (sum(map(cpu_seconds, subject.workers)) - before) / figures["requests"] * 1000,
        "memory_mb": sum(map(resident_mb, subject.workers)),
    }
