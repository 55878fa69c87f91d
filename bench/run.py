"""`script/bench`: the gateway beside its own upstream, a gateway that does nothing, and its rivals, in one run.

The measured server has one core for itself; clients, upstream and stores share the other. All of the product is on:
authentication, limits, reservation, routing, the log, settlement. `subjects.py` has the measured servers, `report.py`
shows the figures.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from bench import report
from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin, resident_mb
from bench.scaling import scaling
from bench.subjects import KINDS, Kind, Subject, gateway, litellm, passthrough, portkey, upstream
from bench.turns import by_turns
from tests.stack.product import PROJECT, eventually

CONNECTIONS = (1, 32, 128)
CACHE = PROJECT / ".local" / "bench"
# The rates at which latency is looked at without a queue: a tenth of what a saturated worker does.
CALM_SHARE = 0.1
Row = dict[str, Any]


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="seconds a measurement")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--svg", type=Path, help="draw them into this file")
    parser.add_argument("--compare", type=Path, help="figures of an earlier run to compare with")
    parser.add_argument("--alone", action="store_true", help="without the rivals")
    parser.add_argument("--turns", action="store_true", help="only the gateway and its rivals by turns")
    parser.add_argument("--short", action="store_true", help="only what tells a change: one number of connections")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="only these kinds of requests")
    parser.add_argument("--soak", type=int, metavar="REQUESTS", help="only watch memory over so many requests")
    chosen = parser.parse_args()
    # A measurement that is ended leaves none of its servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder, upstream() as fixed:
        pin(fixed.workers, OTHERS)
        home = Path(folder)
        if chosen.soak:
            rows = soak(fixed, home, chosen.soak)
        else:
            rows = list((turns if chosen.turns else measure_all)(fixed, home, chosen))
    report.show(rows)
    if chosen.compare:
        report.compare(rows, json.loads(chosen.compare.read_text()))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    if chosen.svg:
        chosen.svg.write_text(report.drawn(rows))


def measure_all(fixed: Subject, folder: Path, chosen: argparse.Namespace) -> Iterator[Row]:
    """Yield one row a measurement."""
    port = fixed.port
    subjects: list[Callable[[], AbstractContextManager[Subject]]] = [
        lambda: _given(fixed),
        lambda: passthrough(port),
        lambda: gateway(port, folder / "plain"),
    ]
    if not chosen.short:
        subjects.append(lambda: gateway(port, folder / "guarded", guarded=True))
        if len(OTHERS | MEASURED) > 1:
            subjects.append(lambda: gateway(port, folder / "two", workers=2))
        if not chosen.alone:
            subjects += [lambda: portkey(port, CACHE), lambda: litellm(port, CACHE, folder)]
    for make in subjects:
        try:
            with make() as subject:
                numbers = (32,) if chosen.short else CONNECTIONS
                yield from measure(subject, chosen.seconds, numbers, fixed, chosen.kinds)
            # The upstream has been measured first; from now on it is one of the others.
            pin(fixed.workers, OTHERS)
        except (OSError, AssertionError) as error:
            print(f"left out: {error}", flush=True)
    if not chosen.short and len(OTHERS | MEASURED) > 1:
        yield from scaling(fixed, folder, chosen.seconds, before_each=settled)
    if not chosen.short:
        yield from turns(fixed, folder, chosen)


@contextmanager
def _given(subject: Subject) -> Iterator[Subject]:
    yield subject


def turns(fixed: Subject, folder: Path, chosen: argparse.Namespace) -> Iterator[Row]:
    """Yield the measurements by turns."""
    yield from by_turns(fixed, folder, None if chosen.alone else CACHE, chosen.seconds, CALM_SHARE, settle=settled)


def measure(
    subject: Subject, seconds: float, connections: tuple[int, ...], fixed: Subject, kinds: Sequence[Kind]
) -> Iterator[Row]:
    """Yield a subject's rows: each kind that it serves at several numbers of connections, and at an easy pace.

    The latency that it adds is measured against the fixed upstream at that pace: a machine that is mostly idle takes
    longer to wake up than one that is busy.
    """
    print(f"measuring {subject.name} ", end="", flush=True)
    if subject.product is not None:
        pin([subject.product.pid], OTHERS)
    many = len(subject.workers) > 1 and subject.product is not None
    pin(subject.workers, MEASURED | OTHERS if many else MEASURED)
    load(subject, "plain", connections=32, seconds=2)
    before = settled(subject)
    # A record of an earlier row that is still being settled is not this row's work.
    answered = 0.0
    for kind in kinds:
        if kind == "embeddings" and subject.embedder is None:
            continue
        best = 0.0
        for number in connections:
            settled(subject)
            row = _row(subject, kind, connections=number, seconds=seconds)
            answered += row["requests"]
            best = max(best, row["per_second"])
            yield row
        if subject.name == "upstream alone" or len(connections) > 1:
            settled(subject)
            rate = best * CALM_SHARE
            row = _row(subject, kind, connections=32, seconds=seconds, rate=rate)
            answered += row["requests"]
            base = load(fixed, kind, connections=32, seconds=seconds, rate=rate)
            yield {**row, "upstream_p50_ms": base["p50_ms"], "upstream_p99_ms": base["p99_ms"]}
    print(flush=True)
    if subject.product is not None:
        yield {"what": subject.name, "kind": "records", "dropped": answered - (recorded(subject) - before)}


def _row(subject: Subject, kind: Kind, *, connections: int, seconds: float, rate: float | None = None) -> Row:
    cpu = sum(map(cpu_seconds, subject.workers))
    figures = load(subject, kind, connections=connections, seconds=seconds, rate=rate)
    used = (sum(map(cpu_seconds, subject.workers)) - cpu) / max(figures["requests"], 1) * 1000
    print(".", end="", flush=True)
    memory = sum(map(resident_mb, subject.workers))
    calm = {"rate": rate} if rate else {}
    return {
        "what": subject.name,
        "kind": kind,
        "connections": connections,
        **calm,
        "cpu_ms": used,
        "memory_mb": memory,
        **figures,
    }


def settled(subject: Subject) -> float:
    """Return how many records of a product have been settled, once none waits any more; 0 for any other."""
    return 0.0 if subject.product is None else recorded(subject)


def recorded(subject: Subject) -> float:
    """Return how many records the product has written, once none waits any more."""
    product = subject.product
    assert product is not None
    counts = [-1.0, -2.0]

    def is_still() -> bool:
        # Depth is looked at now and then only.
        time.sleep(2)
        told = product.metrics()
        counts.append(told["gateway_settled_records_total"])
        return bool(told["gateway_outbox_depth"] == 0 and counts[-1] == counts[-2])

    eventually(is_still, patience=600)
    return counts[-1]


def soak(fixed: Subject, folder: Path, requests: int) -> list[Row]:
    """Return the worker's memory along so many requests, of each kind by turns."""
    rows: list[Row] = []
    with gateway(fixed.port, folder / "soak") as subject:
        assert subject.product is not None
        pin([subject.product.pid], OTHERS)
        pin(subject.workers, MEASURED)
        before = settled(subject)
        warm = load(subject, "plain", connections=32, seconds=5)["requests"]
        answered, kinds = 0.0, cycle(KINDS)
        while answered < requests:
            figures = load(subject, next(kinds), connections=32, seconds=10)
            answered += figures["requests"]
            memory = sum(map(resident_mb, subject.workers))
            rows.append({"what": subject.name, "kind": "soak", "requests": answered, "memory_mb": memory})
            print(f"{answered:>10.0f} requests  {memory:7.1f} MB  {figures['failures']:.0f} failed", flush=True)
        print(f"settled {recorded(subject) - before:.0f} of {warm + answered:.0f}", flush=True)
    return rows


if __name__ == "__main__":
    main()
