"""`script/bench observability`: what traces over OTLP and a log sink cost, beside the same product without them.

By turns, as the pace of a virtual machine changes: processor time of the web worker for each request, and of the
settler for each record. The collector and the sink's receiver are fixed upstreams that answer whatever they are sent.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import requests

from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin
from bench.run import recorded
from bench.subjects import Subject, gateway, upstream

_ROUNDS, _CONNECTIONS = 3, 32


@dataclass(frozen=True, slots=True)
class Variant:
    """A product and what is on in it; `settlers` are the processes that write its records."""

    name: str
    subject: Subject
    settlers: list[int]


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench observability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=6, help="seconds a measurement")
    chosen = parser.parse_args()
    rows: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder, ExitStack() as running:
        variants = list(_variants(Path(folder), running.enter_context))
        # The first round is to get warm.
        for number in range(_ROUNDS + 1):
            for variant in variants:
                row = _round(variant, chosen.seconds)
                rows.setdefault(variant.name, [])
                rows[variant.name] += [row] if number else []
                print(".", end="", flush=True)
    print()
    worker, settler, _ = (median(figures) for figures in zip(*rows["neither"], strict=True))
    print(f"{'':28}{'req/s':>8}{'worker, ms a request':>23}{'settler, ms a record':>23}")
    for name, found in rows.items():
        of_worker, of_settler, rate = (median(figures) for figures in zip(*found, strict=True))
        told = f"{of_worker:.3f} ({of_worker / worker - 1:+.0%})", f"{of_settler:.3f} ({of_settler / settler - 1:+.0%})"
        print(f"{name:28}{rate:>8,.0f}{told[0]:>23}{told[1]:>23}")


def _variants(folder: Path, begin: Callable[[Any], Any]) -> Iterator[Variant]:
    fixed: Subject = begin(upstream())
    receiver: Subject = begin(upstream())
    pin([*fixed.workers, *receiver.workers], OTHERS)
    address = f"http://127.0.0.1:{receiver.port}"
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": address}
    settings: dict[str, dict[str, str]] = {
        "neither": {},
        "endpoint, none sampled": {**traced, "OTEL_TRACES_SAMPLER_ARG": "0"},
        "a tenth sampled": {**traced, "OTEL_TRACES_SAMPLER_ARG": "0.1"},
        "every request traced": {**traced, "OTEL_TRACES_SAMPLER_ARG": "1"},
        "a log sink": {"GATEWAY_ALLOW_PRIVATE_ADDRESSES": "true"},
    }
    for number, (name, variables) in enumerate(settings.items()):
        subject: Subject = begin(gateway(fixed.port, folder / str(number), settings=variables))
        assert subject.product is not None
        pin([subject.product.pid], OTHERS)
        pin(subject.workers, MEASURED)
        if name == "a log sink":
            _register_sink(subject, f"{address}/rows")
        yield Variant(name, subject, subject.product.processes("settler"))


def _register_sink(subject: Subject, url: str) -> None:
    assert subject.product is not None
    demo = subject.product.demo
    answer = requests.post(
        f"{subject.product.url}/log-sinks",
        json={
            "organizationId": demo["organizationId"],
            "name": "bench",
            "kind": "webhook",
            "url": url,
            "secret": f"whsec_{b64encode(bytes(32)).decode()}",
        },
        headers={"Authorization": f"Bearer {demo['sessionToken']}"},
        timeout=30,
    )
    assert answer.ok, answer.text


def _round(variant: Variant, seconds: float) -> tuple[float, float, float]:
    """Return milliseconds of the worker for each request, of the settler for each record, and requests a second."""
    subject = variant.subject
    before, settler_before = recorded(subject), _cpu(variant.settlers)
    worker_before = _cpu(subject.workers)
    figures = load(subject, "plain", connections=_CONNECTIONS, seconds=seconds)
    # What waits to be exported belongs to the requests that made it.
    time.sleep(3)
    worker = _cpu(subject.workers) - worker_before
    records = recorded(subject) - before
    settler = _cpu(variant.settlers) - settler_before
    return worker / figures["requests"] * 1000, settler / max(records, 1) * 1000, figures["per_second"]


def _cpu(pids: list[int]) -> float:
    return sum(map(cpu_seconds, pids))


if __name__ == "__main__":
    main()
