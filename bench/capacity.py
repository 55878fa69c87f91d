"""`script/bench capacity`: what a deployment's size follows from.

Processor time of a request in each kind of process, what PostgreSQL and its write-ahead log grow by, what a record that
waits takes in Valkey, and what an open stream takes of a worker. One worker, clients and upstream share two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import redis

from bench.machine import MEASURED, OTHERS, cpu_seconds, load, pin, resident_mb
from bench.run import recorded
from bench.subjects import Kind, Subject, gateway, upstream
from tests.stack.product import Product, eventually

_CONNECTIONS = 32
# By words of their command lines.
_PROCESSES = {"web": "gunicorn", "settler": "settler", "Valkey": "valkey-server", "PostgreSQL": "postgres"}
# All rows of a request, in every table that it is written to.
_SIZES = """
    SELECT CASE WHEN relname LIKE 'request\\_log%' THEN 'log' WHEN relname LIKE 'billing\\_ledger%' THEN 'ledger'
                ELSE 'all else' END AS part,
           sum(pg_total_relation_size(oid))::bigint
    FROM pg_class WHERE relkind IN ('r', 'm') AND relnamespace = 'public'::regnamespace GROUP BY 1
"""
# Seconds in which a worker that has started loads something, if it still does.
_STILL = 30
# Milliseconds between two pieces of a stream that stays open.
_STREAM = "[[sandbox gap=20000]]"


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="script/bench capacity", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="seconds of load for each kind of request")
    parser.add_argument("--records", type=int, default=5_000, help="records that wait in Valkey at once")
    parser.add_argument("--streams", type=int, default=1_000, help="streams that are open at once")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder, upstream() as fixed:
        pin(fixed.workers, OTHERS)
        with gateway(fixed.port, Path(folder, "capacity")) as subject:
            assert subject.product is not None
            pin([subject.product.pid], OTHERS)
            pin(subject.workers, MEASURED)
            load(subject, "plain", connections=_CONNECTIONS, seconds=3)
            for kind in ("plain", "stream"):
                _show_requests(subject, kind, chosen.seconds)
            _show_waiting(subject, chosen.records)
        with _sandboxed(Path(folder, "streams")) as product:
            _show_streams(product, chosen.streams)


def _show_requests(subject: Subject, kind: Kind, seconds: float) -> None:
    product = subject.product
    assert product is not None
    recorded(subject)
    grown, cpu = _sizes(product), _cpu(product)
    requests = load(subject, kind, connections=_CONNECTIONS, seconds=seconds)["requests"]
    recorded(subject)
    parts = {name: (used - cpu[name]) / requests * 1000 for name, used in _cpu(product).items()}
    print(f"{kind}: {requests:,.0f} requests")
    print("  CPU, ms a request: " + ", ".join(f"{name} {used:.3f}" for name, used in parts.items()))
    growth = {name: (size - grown[name]) / requests for name, size in _sizes(product).items()}
    print("  PostgreSQL, bytes a request: " + ", ".join(f"{name} {size:,.0f}" for name, size in growth.items()))


def _show_waiting(subject: Subject, records: int) -> None:
    """Show what records take in Valkey while no settler takes them."""
    product = subject.product
    assert product is not None
    recorded(subject)
    [settler] = product.processes("settler")
    os.kill(settler, signal.SIGSTOP)
    try:
        client = redis.Redis.from_url(_stores(product)["redis_url"])
        before = int(client.info("memory")["used_memory"])
        requests = 0.0
        while requests < records:
            requests += load(subject, "plain", connections=_CONNECTIONS, seconds=1)["requests"]
        taken = int(client.info("memory")["used_memory"]) - before
    finally:
        os.kill(settler, signal.SIGCONT)
    print(f"Valkey: {taken / requests:,.0f} bytes a record that waits ({requests:,.0f} waited)")
    recorded(subject)


def _show_streams(product: Product, count: int) -> None:
    """Show what open streams take of a worker."""
    [worker] = product.processes("gunicorn")[-1:]
    product.chat("hi")
    before = _settled_memory(worker)
    body = {"model": "sandbox/echo", "stream": True, "messages": [{"role": "user", "content": f"one two {_STREAM}"}]}
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{product.port}\r\n"
        f"Authorization: Bearer {product.demo['apiKey']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    ).encode()
    opened = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", product.port))
        client.sendall(head + data)
        opened.append(client)
        time.sleep(0.002)
    begun = sum(client.recv(15) == b"HTTP/1.1 200 OK" for client in opened)
    taken = resident_mb(worker) - before
    print(f"streams: {begun} open, {taken * 1024 / begun:,.1f} KB of the worker each; {before:,.0f} MB without them")
    for client in opened:
        client.close()


def _settled_memory(pid: int) -> float:
    """Return a worker's memory in MB once it has loaded what it loads after its start."""
    sizes = [0.0]

    def is_still() -> bool:
        time.sleep(_STILL)
        sizes.append(resident_mb(pid))
        return abs(sizes[-1] - sizes[-2]) < 1

    eventually(is_still, patience=300)
    return sizes[-1]


@contextmanager
def _sandboxed(home: Path) -> Iterator[Product]:
    """Run the product with its own sandbox, whose streams can be slow, and without limits."""
    limits = {"RATE_LIMIT_ENTERPRISE": "0", "CONNECTIONS_PER_ADDRESS": "100000", "UPSTREAM_IDLE_TIMEOUT": "120"}
    product = Product(home, WEB_WORKERS="1", **limits)
    try:
        product.manage("grant_credits", product.demo["organizationId"], "1000000")
        yield product
    finally:
        product.stop()


def _cpu(product: Product) -> dict[str, float]:
    return {name: sum(map(cpu_seconds, product.processes(word))) for name, word in _PROCESSES.items()}


def _sizes(product: Product) -> dict[str, int]:
    """Return bytes by kind of table, and of the write-ahead log so far."""
    with psycopg.connect(_stores(product)["database_url"], autocommit=True) as connection:
        parts: dict[str, int] = dict(connection.execute(_SIZES).fetchall())
        [written] = connection.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone() or (0,)
    return {**parts, "write-ahead log": int(written)}


def _stores(product: Product) -> dict[str, Any]:
    text = Path(product.environment["GATEWAY_HOME"], "run", "stores.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


if __name__ == "__main__":
    main()
