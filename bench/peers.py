"""`script/bench peers`: the rate that each server holds within a bound of added latency, governed or passed through.

Bodies of 256 bytes, an upstream that answers after 20 ms, one core for the measured server. A rate holds when no
request fails and the 99th percentile is at most the bound above the upstream's own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import peer_servers
from bench.machine import MEASURED, OTHERS, isolate, load, pin
from bench.run import CACHE
from bench.subjects import Subject, gateway, install_litellm, install_portkey, litellm, passthrough, portkey, upstream

BODY_SIZE, DELAY = 256, 20.0
# Milliseconds at the 99th percentile.
BOUNDS = (5.0, 10.0, 50.0)
_CONNECTIONS, _STEPS = 256, 5
# The share of a rate that has to be answered within the time: less is a queue that grows.
_ANSWERED = 0.97
Row = dict[str, Any]


class PeerServer(NamedTuple):
    """A server by the name of its project: how to run it before an upstream's port, with a folder for its files."""

    name: str
    run: Callable[[int, Path], AbstractContextManager[Subject]]
    # Installs it into the bench's cache unless it is there. Raises OSError.
    install: Callable[[Path], object] | None = None


FERRO = "Ferro"
SERVERS = (
    PeerServer("gateway", lambda port, home: gateway(port, home / "gateway")),
    PeerServer("bare pass-through", lambda port, home: passthrough(port)),
    PeerServer("Portkey", lambda port, home: portkey(port, CACHE), install_portkey),
    PeerServer("LiteLLM", lambda port, home: litellm(port, CACHE, home), install_litellm),
    PeerServer("TensorZero", lambda port, home: peer_servers.tensorzero(port, CACHE, home), peer_servers.install),
    PeerServer(FERRO, lambda port, home: peer_servers.ferro(port, CACHE, home), peer_servers.install),
    PeerServer("Envoy", lambda port, home: peer_servers.envoy(port, CACHE, home), peer_servers.install),
)


def main() -> None:
    """Measure and print, a line for each server."""
    parser = argparse.ArgumentParser(prog="script/bench peers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="seconds a measurement")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only servers whose names have one of the words")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    chosen = parser.parse_args()
    servers = [one for one in SERVERS if not chosen.only or _is_named(one.name, chosen.only)]
    # Before there is no other network than loopback.
    missing = dict(_not_installed(servers))
    if not isolate():
        missing[FERRO] = "it listens on every interface, and this system gives no network of its own"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder, upstream(DELAY) as fixed:
        pin(fixed.workers, OTHERS)
        print(f"{'':24}{'':14}" + "".join(f"{f'p99 +{bound:.0f} ms':>14}" for bound in BOUNDS))
        for server in servers:
            try:
                if server.name in missing:
                    raise ChildProcessError(missing[server.name])
                with server.run(fixed.port, Path(folder)) as subject:
                    rows.append(_measure(replace(subject, body_size=BODY_SIZE), fixed, chosen.seconds))
            except (OSError, AssertionError) as error:
                print(f"{server.name:24}left out: {' '.join(str(error).split())[:200]}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def _is_named(name: str, words: Iterable[str]) -> bool:
    return any(word.lower() in name.lower() for word in words)


def _not_installed(servers: Iterable[PeerServer]) -> Iterator[tuple[str, str]]:
    """Install the servers; yield those that could not be, and why."""
    for server in servers:
        if server.install is not None:
            try:
                server.install(CACHE)
            except OSError as error:
                yield server.name, str(error)


def _measure(subject: Subject, fixed: Subject, seconds: float) -> Row:
    """Print and return the rates that a server holds within the bounds."""
    if subject.product is not None:
        pin([subject.product.pid], OTHERS)
    pin(subject.workers, MEASURED)
    load(subject, "plain", connections=_CONNECTIONS, seconds=min(seconds, 2))
    most = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds)
    if most["failures"]:
        raise AssertionError(f"{most['failures']:.0f} of {most['requests']:.0f} requests failed")
    base = load(replace(fixed, body_size=BODY_SIZE), "plain", connections=_CONNECTIONS, seconds=seconds, rate=100)
    tried: dict[float, float] = {}

    def added_by(rate: float) -> float:
        """Return the milliseconds that a server adds at a rate (p99); infinitely many where it does not hold it."""
        if rate not in tried:
            row = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds, rate=rate)
            holds = not row["failures"] and row["per_second"] >= rate * _ANSWERED
            tried[rate] = row["p99_ms"] - base["p99_ms"] if holds else float("inf")
        return tried[rate]

    rates = {f"{bound:g}": best_rate(most["per_second"], bound, added_by) for bound in BOUNDS}
    kind = "governed" if subject.is_governed else "passthrough"
    print(f"{subject.name:24}{kind:14}" + "".join(f"{rate:>12.0f}/s" for rate in rates.values()), flush=True)
    return {"what": subject.name, "kind": kind, "saturated": most["per_second"], "rates": rates}


def best_rate(most: float, bound: float, added_by: Callable[[float], float], steps: int = _STEPS) -> float:
    """Return the highest rate up to `most` at which at most `bound` milliseconds are added; 0 if none tried holds it.

    It halves the range between the highest rate that held and the lowest that did not.
    """
    held, failed = 0.0, most
    for _ in range(steps):
        rate = (held + failed) / 2
        if added_by(rate) <= bound:
            held = rate
        else:
            failed = rate
    return held


if __name__ == "__main__":
    main()
