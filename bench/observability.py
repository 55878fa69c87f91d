"""`script/bench observability`: what traces over OTLP and a log sink cost.

For one worker and one settler, by turns: a client's `traceparent` says of each block of requests whether it is traced,
and the organization's sink is switched on and off. The collector and the sink's receiver are a fixed upstream that
answers whatever it is sent.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from base64 import b64encode
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import requests

from bench.blocks import Connections, compare
from bench.machine import MEASURED, OTHERS, load, pin, threads_cpu_seconds
from bench.run import recorded
from bench.subjects import Subject, gateway, upstream

_CONNECTIONS, _BLOCK = 32, 300
_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
# Traces that are sent while no requests come, how often that is looked at, and seconds that it takes at most.
_SENT, _SENDINGS, _SENDING = 800, 8, 2.5
_SINK_ROUNDS = 4


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench observability", description=__doc__)
    parser.add_argument("--rounds", type=int, default=150, help="blocks of each kind")
    parser.add_argument("--seconds", type=float, default=4, help="seconds a measurement of the sink")
    parser.add_argument("what", nargs="?", choices=("traces", "sink"), help="only this")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder, ExitStack() as running:
        fixed: Subject = running.enter_context(upstream())
        receiver: Subject = running.enter_context(upstream())
        pin([*fixed.workers, *receiver.workers], OTHERS)
        address = f"http://127.0.0.1:{receiver.port}"
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "GATEWAY_ALLOW_PRIVATE_ADDRESSES": "true"}
        subject: Subject = running.enter_context(gateway(fixed.port, Path(folder), settings=settings))
        assert subject.product is not None
        pin([subject.product.pid], OTHERS)
        pin(subject.workers, MEASURED)
        os.sched_setaffinity(0, OTHERS)
        if chosen.what != "sink":
            _show_traces(subject, chosen.rounds)
        if chosen.what != "traces":
            _show_sink(subject, f"{address}/rows", chosen.seconds)


def _show_traces(subject: Subject, rounds: int) -> None:
    kinds = {
        name: replace(subject, headers={**subject.headers, "traceparent": f"{_TRACEPARENT}{flags}"}).request("plain")
        for name, flags in (("not traced", 0), ("traced", 1))
    }
    with Connections(subject.port, _CONNECTIONS) as connections:
        found = compare(connections, kinds, lambda: threads_cpu_seconds(subject.workers), rounds, _BLOCK)
        sending = [_sending(subject, connections, kinds[name]) for _ in range(_SENDINGS) for name in kinds]
    base = found["not traced"].median
    traced = found["traced"]
    sent = mean(sending[1::2]) - mean(sending[::2])
    print(f"a request that is not traced: {base:.0f} µs of the worker")
    print(f"its trace: {traced.more:.1f} µs (± {traced.standard_error:.1f}) and {sent:.1f} µs to send it:", end=" ")
    print(f"{(traced.more + sent) / base:+.1%}")


def _sending(subject: Subject, connections: Connections, request: bytes) -> float:
    """Return microseconds for each of some requests that the worker takes after it has answered them."""
    connections.ask(request, _SENT)
    before = threads_cpu_seconds(subject.workers)
    time.sleep(_SENDING)
    return (threads_cpu_seconds(subject.workers) - before) / _SENT * 1e6


def _show_sink(subject: Subject, url: str, seconds: float) -> None:
    assert subject.product is not None
    sink = _register_sink(subject, url)
    settlers = subject.product.processes("settler")
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    # The first round is to get warm.
    for number in range(_SINK_ROUNDS + 1):
        for is_on in (True, False) if number % 2 else (False, True):
            _ask_management(subject, "PATCH", f"/log-sinks/{sink}", {"status": "active" if is_on else "inactive"})
            records, settler, worker = recorded(subject), threads_cpu_seconds(settlers), _worker(subject)
            answered = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds)["requests"]
            worker = (_worker(subject) - worker) / answered
            records = recorded(subject) - records
            row = (threads_cpu_seconds(settlers) - settler) / max(records, 1), worker
            found[is_on] += [row] if number else []
    print(f"{'':16}{'settler, µs a record':>28}{'worker, µs a request':>28}")
    for is_on, rows in found.items():
        told = [_median_and_range([seconds * 1e6 for seconds in figures]) for figures in zip(*rows, strict=True)]
        print(f"{'with a sink' if is_on else 'without':16}" + "".join(f"{one:>28}" for one in told))


def _median_and_range(figures: list[float]) -> str:
    return f"{median(figures):.1f} ({min(figures):.0f} to {max(figures):.0f})"


def _worker(subject: Subject) -> float:
    return threads_cpu_seconds(subject.workers)


def _register_sink(subject: Subject, url: str) -> str:
    """Return the id of a new sink of the organization."""
    assert subject.product is not None
    fields = {
        "organizationId": subject.product.demo["organizationId"],
        "name": "bench",
        "kind": "webhook",
        "url": url,
        "secret": f"whsec_{b64encode(bytes(32)).decode()}",
    }
    told = _ask_management(subject, "POST", "/log-sinks", fields)
    return str(told.json()["logSink"]["id"])


def _ask_management(subject: Subject, method: str, path: str, fields: dict[str, str]) -> requests.Response:
    assert subject.product is not None
    headers = {"Authorization": f"Bearer {subject.product.demo['sessionToken']}"}
    answer = requests.request(method, f"{subject.product.url}{path}", json=fields, headers=headers, timeout=30)
    assert answer.ok, answer.text
    return answer


if __name__ == "__main__":
    main()
