"""`script/bench`: the fixed upstream alone, then the gateway in front of it, at several numbers of connections.

Everything is on: authentication, reservation, routing, the log, settlement. One web worker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.stack.product import Product, eventually

PROMPT = "Tell me about the weather in the mountains. " * 20


def main() -> None:
    """Measure and print a table; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="seconds per measurement")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as home:
        product = Product(Path(home), RATE_LIMIT_ENTERPRISE="0")
        try:
            rows = measure(product, chosen.seconds)
        finally:
            product.stop()
    show(rows)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(product: Product, seconds: float) -> list[dict[str, Any]]:
    """Return one row a measurement."""
    (sandbox,) = product.processes("-m apps.sandbox")[-1:]
    command = Path(f"/proc/{sandbox}/cmdline").read_bytes().split(b"\0")
    upstream_port = int(command[command.index(b"--port") + 1])
    # The youngest of gunicorn's processes is its worker.
    worker = product.processes("gunicorn")[-1]
    product.manage("grant_credits", product.demo["organizationId"], "1000000")
    rows = []
    for stream in (False, True):
        for connections in (1, 32, 128):
            for name, port, model, pid in (
                ("upstream alone", upstream_port, "echo-fast", sandbox),
                ("gateway", product.port, "sandbox/echo-fast", worker),
            ):
                request = request_of(port, product.demo["apiKey"], model, stream=stream)
                load(port, request, connections, 1)
                cpu = cpu_seconds(pid)
                figures = load(port, request, connections, seconds)
                used = (cpu_seconds(pid) - cpu) / max(figures["requests"], 1) * 1000
                rows.append({"what": name, "stream": stream, "connections": connections, "cpu_ms": used, **figures})
                print(".", end="", flush=True)
    eventually(lambda: product.metrics()["gateway_outbox_depth"] == 0, patience=300)
    answered = sum(row["requests"] for row in rows if row["what"] == "gateway")
    print(f"\nanswered while measured {answered:.0f}; settled {product.metrics()['gateway_settled_records_total']:.0f}")
    return rows


def load(port: int, request: bytes, connections: int, seconds: float) -> dict[str, float]:
    """Run the clients in a process of their own."""
    task = {"port": port, "request": request.decode(), "connections": connections, "seconds": seconds}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.load"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 60,
    )
    return dict(json.loads(done.stdout))


def request_of(port: int, key: str, model: str, *, stream: bool) -> bytes:
    """Return the bytes of a request of about 1 KB."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": PROMPT}], "stream": stream})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{'':16}{'':8}{'conns':>6}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'failed':>8}")
    for row in rows:
        kind = "stream" if row["stream"] else "plain"
        print(
            f"{row['what']:16}{kind:8}{row['connections']:>6}{row['per_second']:>9.0f}{row['p50_ms']:>9.2f}"
            f"{row['p99_ms']:>9.2f}{row['cpu_ms']:>9.3f}{row['failures']:>8.0f}"
        )


if __name__ == "__main__":
    main()
