"""`script/bench nodes`: what a request costs on one of three web nodes, on all three, and on one with as many workers.

The nodes have homes of their own and share PostgreSQL behind PgBouncer, Valkey and two settlers, as `script/chaos
--fleet` has them. By turns, at the same rate for each worker, as fast as they can, and not at all; everything shares
all cores. Three workers on two cores cost more than one that has a core to itself, also in one node: what nodes cost by
being several is what three take beside one with three workers.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.machine import load, threads_cpu_seconds
from bench.subjects import Subject, upstream
from tests.chaos.fleet import Fleet
from tests.chaos.nodes import Node
from tests.stack.product import descendants, eventually

_ROUNDS, _CONNECTIONS = 5, 16
_CORES = os.sched_getaffinity(0)


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench nodes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="seconds a measurement")
    parser.add_argument("--rate", type=float, default=150, help="requests a second for each node")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodes-") as folder, upstream() as fixed:
        Path(folder).chmod(0o711)
        with _nodes(Path(folder), fixed) as (*nodes, wide):
            print("measuring by turns ", end="", flush=True)
            named = {
                "1 node": nodes[:1],
                f"{len(nodes)} nodes": nodes,
                f"1 node, {len(nodes)} workers": [wide] * len(nodes),
            }
            ways = [(rate, name) for rate in (chosen.rate, None) for name in named]
            found: dict[tuple[float | None, str], list[tuple[float, float]]] = {}
            # The first round is to get warm.
            for number in range(_ROUNDS + 1):
                for rate, name in ways:
                    row = _measure(named[name], chosen.seconds, rate)
                    found.setdefault((rate, name), []).extend([row] if number else [])
                    print(".", end="", flush=True)
            idle = _idle(nodes, chosen.seconds)
    print()
    print(f"a node that nobody asks: {idle * 1000:.1f} ms of web CPU a second")
    for (rate, name), rows in found.items():
        per_second, cpu = (median(figures) for figures in zip(*rows, strict=True))
        pace = f"at {rate:.0f}/s a worker" if rate else "as fast as can be"
        print(f"{name:20} {pace:20} {per_second:>7,.0f}/s  {cpu:.3f} ms of web CPU a request")


@contextmanager
def _nodes(folder: Path, fixed: Subject) -> Iterator[list[Subject]]:
    """Start the nodes of a fleet, and one more with as many workers as they have together: the last."""
    fleet = Fleet(folder / "fleet", RATE_LIMIT_ENTERPRISE="0", SANDBOX_BASE_URL=f"http://127.0.0.1:{fixed.port}/v1")
    wide: Node | None = None
    try:
        web = [node for node in fleet.nodes.all if node.role == "web"]
        wide = Node("web-wide", "web", folder, {**fleet.nodes.shared, "WEB_WORKERS": str(len(web))})
        wide.keep()
        eventually(lambda: all(node.ready for node in web), patience=90)
        eventually(lambda: _is_ready(wide), patience=90)
        # A look takes a node 2 ms, and five a second would count as requests' work.
        fleet.nodes.stop_looking()
        fleet.manage("grant_credits", fleet.demo["organizationId"], "1000000")
        headers = {"Authorization": f"Bearer {fleet.demo['apiKey']}"}
        yield [
            Subject(node.name, node.port, [node.pid, *descendants(node.pid)], "sandbox/echo-fast", headers)
            for node in (*web, wide)
            if node.pid is not None
        ]
    finally:
        if wide is not None:
            wide.kill()
        fleet.stop()


def _is_ready(node: Node) -> bool:
    node.look()
    return node.ready


def _measure(nodes: Sequence[Subject], seconds: float, rate: float | None) -> tuple[float, float]:
    """Return requests a second of all nodes together, and milliseconds of their processes for each.

    A node that is given several times has as many clients.
    """
    # Earlier answers are settled meanwhile.
    time.sleep(2)
    before = _cpu(nodes)
    with ThreadPoolExecutor(len(nodes)) as threads:
        rows = list(threads.map(lambda node: _load(node, seconds, rate), nodes))
    requests = sum(row["requests"] for row in rows)
    return sum(row["per_second"] for row in rows), (_cpu(nodes) - before) / requests * 1000


def _idle(nodes: Sequence[Subject], seconds: float) -> float:
    """Return the part of a core that a node takes without requests."""
    time.sleep(2)
    before = _cpu(nodes)
    time.sleep(seconds)
    return (_cpu(nodes) - before) / seconds / len(nodes)


def _load(node: Subject, seconds: float, rate: float | None) -> dict[str, float]:
    return load(node, "plain", connections=_CONNECTIONS, seconds=seconds, rate=rate, cores=set(_CORES))


def _cpu(nodes: Sequence[Subject]) -> float:
    return threads_cpu_seconds({pid for node in nodes for pid in node.workers})


if __name__ == "__main__":
    main()
