"""`script/bench slow_streams`: memory of a worker with thousands of slow streams, and small requests beside them.

One worker holds the streams open, each of which gets a piece every few seconds, while small requests come at a steady
rate; these are compared with the same requests before there were streams. One process may have as many descriptors as
the system allows it: each stream takes the worker two. Organizations share the streams: each may have 2,000 at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests

from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin, resident_mb
from bench.subjects import Subject, gateway, upstream

# Streams that are begun each second, and bytes read at once.
_BEGUN_A_SECOND, _READ = 100, 65_536
# Seconds in which every stream must have begun once all have been asked for.
_PATIENCE = 60.0
# Streams of one organization, which leaves it room for small requests.
_OF_AN_ORGANIZATION = 1_900


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench slow_streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=1_900, help="streams that are open at a time")
    parser.add_argument("--every", type=float, default=5, help="seconds between two pieces of a stream")
    parser.add_argument("--rate", type=float, default=100, help="small requests a second")
    parser.add_argument("--seconds", type=float, default=20, help="seconds a measurement")
    chosen = parser.parse_args()
    settings = {
        "CONNECTIONS_PER_ADDRESS": "1000000",
        "REQUESTS_IN_PROGRESS_LIMIT": "1000000",
        "WORKER_CONNECTIONS": str(chosen.streams + 200),
        "ORGANIZATIONS_PER_USER": "20",
    }
    with (
        tempfile.TemporaryDirectory(prefix="slow-streams-") as folder,
        upstream(every=chosen.every * 1000) as fixed,
        gateway(fixed.port, Path(folder), settings=settings) as subject,
    ):
        assert subject.product is not None
        pin([subject.product.pid, *fixed.workers], OTHERS)
        pin(subject.workers, MEASURED)
        load(subject, "plain", connections=32, seconds=3)
        _show("no streams", subject, chosen.seconds, chosen.rate)
        before = _memory(subject)
        with _streams(subject, chosen.streams) as begun_in:
            print(f"{chosen.streams} streams have begun within {begun_in:.1f} s", flush=True)
            _show(f"{chosen.streams} streams", subject, chosen.seconds, chosen.rate)
            print(f"{(_memory(subject) - before) * 1024 / chosen.streams:.1f} KB a stream")


def _memory(subject: Subject) -> float:
    return sum(map(resident_mb, subject.workers))


def _show(name: str, subject: Subject, seconds: float, rate: float) -> None:
    cpu = sum(map(cpu_seconds, subject.workers))
    row = load(subject, "plain", connections=32, seconds=seconds, rate=rate)
    share = (sum(map(cpu_seconds, subject.workers)) - cpu) / seconds
    print(
        f"{name:>15}: small requests p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms, {row['failures']:.0f}"
        f" failed; {share:.0%} of a core, {_memory(subject):.1f} MB",
        flush=True,
    )


def _stranger(subject: Subject) -> Subject:
    """Return the same server, asked with the key of a new organization with the plan and credits of a large one."""
    product = subject.product
    assert product is not None

    def manage(path: str, **fields: str) -> Any:
        headers = {"Authorization": f"Bearer {product.demo['sessionToken']}"}
        answer = requests.post(product.url + path, json=fields, headers=headers, timeout=60)
        answer.raise_for_status()
        return answer.json()

    organization = manage("/organization", name="Streams")["organization"]["id"]
    product.manage("set_plan", organization, "enterprise")
    product.manage("grant_credits", organization, "1000000")
    project = manage("/projects", name="Streams", organizationId=organization)["project"]["id"]
    token = manage("/keys/api", description="streams", projectId=project)["apiKey"]["token"]
    return replace(subject, headers={"Authorization": f"Bearer {token}"})


@contextmanager
def _streams(subject: Subject, streams: int) -> Iterator[float]:
    """Hold streams open, of a process of their own, until the block ends. Raises ChildProcessError."""
    keys = [subject, *(_stranger(subject) for _ in range((streams - 1) // _OF_AN_ORGANIZATION))]
    task = {"port": subject.port, "streams": streams, "requests": [key.request("stream").decode() for key in keys]}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.slow_streams", "--hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, OTHERS),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        told = process.stdout.readline()
        if not told:
            raise ChildProcessError("not every stream has begun")
        yield float(told)
        process.stdin.close()
        lost = process.stdout.readline()
        print(f"{int(lost)} streams were lost")
    finally:
        process.terminate()
        process.wait(30)


def _hold() -> None:
    """Begin the streams of a task, tell how long that took, and read them until the input ends."""
    task = json.loads(sys.stdin.readline())
    bodies = [body.encode() for body in task["requests"]]
    waiting = selectors.DefaultSelector()
    begun: set[int] = set()
    lost = opened = 0
    started = time.monotonic()
    is_told = False
    while True:
        now = time.monotonic()
        while opened < min(task["streams"], (now - started) * _BEGUN_A_SECOND):
            sock = socket.create_connection(("127.0.0.1", task["port"]))
            sock.sendall(bodies[opened % len(bodies)])
            waiting.register(sock, selectors.EVENT_READ)
            opened += 1
        if not is_told and len(begun) == task["streams"]:
            print(now - started, flush=True)
            waiting.register(sys.stdin, selectors.EVENT_READ)
            is_told = True
        if not is_told and now - started > task["streams"] / _BEGUN_A_SECOND + _PATIENCE:
            raise TimeoutError(f"{len(begun)} of {task['streams']} streams have begun")
        for key, _ in waiting.select(0.001 if opened < task["streams"] else 0.1):
            if key.fileobj is sys.stdin:
                print(lost, flush=True)
                return
            sock = key.fileobj  # type: ignore[assignment] # a selector returns the file object that was registered
            data = sock.recv(_READ)
            if key.fd not in begun:
                if not data.startswith(b"HTTP/1.1 200"):
                    raise ConnectionError(f"a stream was refused: {data[:200]!r}")
                begun.add(key.fd)
            if not data or data.endswith(b"\r\n0\r\n\r\n"):
                lost += 1
                waiting.unregister(sock)
                sock.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--hold"]:
        _hold()
    else:
        main()
