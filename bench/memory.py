"""`script/bench memory`: memory of the whole product while it is idle, by process.

Starts the product in development mode with its own stores, waits, and shows the PSS of each kind of process: what it
has alone, and its share of what it has together with others. Libraries that other programs have loaded as well count
less, so that servers beside this one make the sum smaller.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.machine import resident_mb
from tests.stack.product import Product, descendants

# The kinds of processes, and words of their command lines; the first that fits.
_KINDS = (
    ("web: arbiter and workers", "gunicorn"),
    ("settler", "manage.py settler"),
    ("beat", "gateway_project.beat"),
    ("Celery worker", "celery"),
    ("sandbox", "apps.sandbox"),
    ("Valkey", "valkey-server"),
    ("flusher", "aof_fsync.py"),
    ("PostgreSQL", "postgres"),
    ("supervisor", "gateway_project.processes.server"),
)


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench memory", description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="web workers")
    parser.add_argument("--seconds", type=float, default=20, help="seconds between `ready` and the measurement")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder:
        home = Path(folder, "home")
        # Stores and catalog are made once: the start that is measured finds them.
        assert Product(home).stop() == 0
        began = time.monotonic()
        product = Product(home, WEB_WORKERS=str(chosen.workers))
        took = time.monotonic() - began
        try:
            time.sleep(chosen.seconds)
            show(product.pid)
        finally:
            product.stop()
    print(f"ready after {took:.1f} s")


def show(server: int) -> None:
    """Show the memory of a server and its descendants."""
    found: dict[str, list[float]] = {name: [] for name, _ in _KINDS}
    for pid in [server, *descendants(server)]:
        found[_kind_of(pid)].append(resident_mb(pid))
    for name, sizes in found.items():
        print(f"{name:<26} {len(sizes):>3} {sum(sizes):>8.1f} MB")
    every = [size for sizes in found.values() for size in sizes]
    print(f"{'all':<26} {len(every):>3} {sum(every):>8.1f} MB", flush=True)


def _kind_of(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return next(name for name, words in _KINDS if words in command)


if __name__ == "__main__":
    main()
