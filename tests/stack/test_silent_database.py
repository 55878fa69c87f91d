"""PostgreSQL that is silent: stopped, so that it neither answers nor hangs up. And many at once on a cold key."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests

from tests.stack.product import Product, descendants, eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def product(harmed_product: Product) -> Product:
    """The server parts of which are stopped."""
    return harmed_product


@contextmanager
def silent_database(product: Product) -> Iterator[None]:
    """Stop all of PostgreSQL for as long as the block."""
    found = []
    for pid in descendants(product.pid):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("postgres"):
                found.append(pid)
    assert found
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def ask(product: Product, token: str) -> tuple[int, str | None]:
    """Ask with a key; return the status and the `Retry-After` header."""
    response = requests.post(
        f"{product.url}/v1/chat/completions",
        json={"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]},
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    )
    return response.status_code, response.headers.get("Retry-After")


def test_while_postgres_is_silent_warm_keys_are_served_and_cold_ones_told_to_come_back(product: Product) -> None:
    assert product.chat("warm").status_code == 200
    with silent_database(product):
        # The first finds it out for all others; the pool alone would have each of them wait for ten seconds.
        began = time.monotonic()
        with ThreadPoolExecutor(20) as pool:
            cold = Counter(pool.map(lambda number: ask(product, f"gw_dev_{number:040d}"), range(40)))
        assert cold == {(503, "2"): 40}
        for number in range(40, 60):
            assert ask(product, f"gw_dev_{number:040d}") == (503, "2")
        assert time.monotonic() - began < 10
        began = time.monotonic()
        assert [product.chat("warm").status_code for _ in range(50)] == [200] * 50
        assert time.monotonic() - began < 10
        health = requests.get(product.url, timeout=10)
        assert (health.status_code, health.json()["message"]) == (503, "Failed: database")
    eventually(lambda: ask(product, f"gw_dev_{99:040d}") == (401, None))
    assert product.chat("afterwards").status_code == 200
    # Nothing of it is missing.
    eventually(lambda: len(product.all_logs()) >= 52)


def test_three_hundred_at_once_on_a_cold_key_are_all_served(product: Product) -> None:
    token = str(product.demo["apiKey"])
    product.kill("gunicorn")
    eventually(lambda: _is_up(product), patience=60)
    with ThreadPoolExecutor(100) as pool:
        assert Counter(pool.map(lambda _: ask_patiently(product, token), range(300))) == {200: 300}


def ask_patiently(product: Product, token: str) -> int:
    """Ask with a key as clients do: come back when told to, twice. Return the status.

    A worker that has just started on a busy machine may shed some of a hundred at once, and says when to come back.
    """
    for _ in range(2):
        status, retry_after = ask(product, token)
        if status != 503 or retry_after is None:
            return status
        time.sleep(float(retry_after))
    return ask(product, token)[0]


def _is_up(product: Product) -> bool:
    with suppress(requests.RequestException):
        return requests.get(product.url, timeout=5).status_code == 200
    return False
