"""`script/bench limits`: what ten limits cost a request under load.

One gateway serves plain requests of one key without limits and of one under ten, over 32 connections, by turns: what
counts is the processor time of its web worker for a request, medians of the rounds. With as many requests as are
answered, the limits fill the other core, where the stores are, and the worker waits for it: `--rate` compares both at
the same load.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin
from bench.subjects import Subject, gateway, upstream

_CONNECTIONS = 32
_CREATE_KEY = "from bench.request_trace import create_limited_key; print(create_limited_key({key!r}))"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="script/bench limits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="rounds of each key, after one to get warm")
    parser.add_argument("--seconds", type=float, default=2, help="seconds of a round")
    parser.add_argument("--rate", type=float, help="requests a second; by default as many as are answered")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, upstream() as fixed, gateway(fixed.port, Path(home)) as plain:
        assert plain.product is not None
        code = _CREATE_KEY.format(key=plain.product.demo["apiKey"])
        token = plain.product.manage("shell", "--no-imports", "--command", code).split()[-1]
        limited = replace(plain, headers={"Authorization": f"Bearer {token}"})
        pin([plain.product.pid, *fixed.workers], OTHERS)
        pin(plain.workers, MEASURED)
        load_of = chosen.seconds, chosen.rate
        rounds = [(_cpu_of(plain, *load_of), _cpu_of(limited, *load_of)) for _ in range(chosen.rounds + 1)]
    without, under = zip(*rounds[1:], strict=True)
    ratio = median(more / less for less, more in rounds[1:])
    print(f"{median(without):.3f} ms, under ten limits {median(under):.3f} ms, {ratio:.3f} times as much")


def _cpu_of(subject: Subject, seconds: float, rate: float | None) -> float:
    """Return the milliseconds of the workers' processor time for a request, over a round."""
    before = sum(map(cpu_seconds, subject.workers))
    figures = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds, rate=rate)
    assert not figures["failures"], figures
    return (sum(map(cpu_seconds, subject.workers)) - before) / figures["requests"] * 1000


if __name__ == "__main__":
    main()
