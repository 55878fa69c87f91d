"""The rate within a bound: found by halving, and never one that did not hold."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from bench.peers import BODY_SIZE, best_rate
from bench.subjects import Subject
from gateway_project.configuration.data_directory import PROJECT
from tests.stack.product import eventually, free_port


@pytest.mark.parametrize(
    ("limit", "found"), [(0, 0.0), (99, 0.0), (100, 100.0), (450, 400.0), (1_000, 1_000.0), (5_000, 1_500.0)]
)
def test_the_highest_rate_that_held_is_found(limit: float, found: float) -> None:
    tried: list[float] = []

    def added_by(rate: float) -> float:
        tried.append(rate)
        return 5.0 if rate <= limit else float("inf")

    assert best_rate(1_600, 5.0, added_by, steps=4) == found
    assert len(tried) == 4
    assert max([rate for rate in tried if rate <= limit], default=0.0) == found


def test_a_rate_over_the_bound_does_not_count() -> None:
    assert best_rate(1_600, 4.9, lambda rate: 5.0) == 0.0


def test_a_body_has_the_stated_size() -> None:
    for name in ("echo-fast", "tensorzero::model_name::echo-fast", "sandbox/echo-fast"):
        asked = Subject("one", 1, [], name, body_size=BODY_SIZE, root="/openai/v1").request("plain")
        head, _, body = asked.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /openai/v1/chat/completions HTTP/1.1\r\n")
        assert (len(body), json.loads(body)["model"]) == (BODY_SIZE, name)
        assert f"Content-Length: {BODY_SIZE}".encode() in head


def _connect(port: int) -> socket.socket | None:
    with suppress(ConnectionRefusedError):
        return socket.create_connection(("127.0.0.1", port), timeout=30)
    return None


def test_the_upstream_answers_after_its_delay() -> None:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.upstream", str(port), "50"], cwd=PROJECT)
    try:
        client = eventually(lambda: _connect(port))
        asked = Subject("upstream", port, []).request("plain")
        with client:
            began = time.perf_counter()
            client.sendall(asked)
            answer = client.recv(65_536)
            waited = time.perf_counter() - began
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert waited >= 0.05
    finally:
        process.kill()
        process.wait()
