"""The cost of a request with everything there twice: a worker and all that goes with it on one core, then two workers
and all that goes with them on two, with as many connections a core.

Measured by turns, as the pace of a virtual machine changes: a hot spot that workers share would show as processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin
from bench.subjects import Subject, gateway

_ROUNDS, _CONNECTIONS = 5, 32


def scaling(
    fixed: Subject, folder: Path, seconds: float, before_each: Callable[[Subject], Any]
) -> Iterator[dict[str, Any]]:
    """Yield the row of one core, and the row of two."""
    print("measuring one core and two ", end="", flush=True)
    both = MEASURED | OTHERS
    with (
        gateway(fixed.port, folder / "one core") as one,
        gateway(fixed.port, folder / "two cores", workers=2) as two,
    ):
        ways = ((one, MEASURED, _CONNECTIONS), (two, set(sorted(both)[:2]), 2 * _CONNECTIONS))
        for subject, cores, connections in ways:
            _take_to(cores, subject, fixed)
            load(subject, "plain", connections=connections, seconds=2, cores=cores)
        found: dict[str, list[tuple[float, dict[str, float]]]] = {}
        for _ in range(_ROUNDS):
            for subject, cores, connections in ways:
                before_each(subject)
                _take_to(cores, subject, fixed)
                before = sum(map(cpu_seconds, subject.workers))
                figures = load(subject, "plain", connections=connections, seconds=seconds, cores=cores)
                used = (sum(map(cpu_seconds, subject.workers)) - before) / figures["requests"] * 1000
                found.setdefault(subject.name, []).append((used, figures))
                print(".", end="", flush=True)
    print(flush=True)
    for (subject, cores, connections), rounds in zip(ways, found.values(), strict=True):
        yield {
            "what": f"everything on {len(cores)} core{'s' if len(cores) > 1 else ''}",
            "kind": "scaling",
            "workers": len(subject.workers),
            "connections": connections,
            "cpu_ms": median(used for used, _ in rounds),
            "per_second": median(figures["per_second"] for _, figures in rounds),
            "failures": sum(figures["failures"] for _, figures in rounds),
        }


def _take_to(cores: set[int], subject: Subject, fixed: Subject) -> None:
    """Bring a product with all of its processes, and the upstream, to some cores."""
    assert subject.product is not None
    pin([subject.product.pid, *fixed.workers], cores)
