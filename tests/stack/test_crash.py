"""Killing processes under load loses nothing and counts nothing twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from uuid import uuid4

import pytest
import requests

from tests.stack.product import MONEY_STORE, Product, eventually

pytestmark = [pytest.mark.stack, pytest.mark.long]


@pytest.fixture
def product(tmp_path: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of this test's own, to be harmed."""
    product = Product(tmp_path_factory.mktemp("crash"))
    yield product
    product.stop()


class Load:
    """Clients that ask, whole and streamed, until told to stop; what each was answered."""

    def __init__(self, product: Product, clients: int) -> None:
        self.answered: set[str] = set()
        self.broken: set[str] = set()
        self.refused: Counter[int] = Counter()
        self._product = product
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        chance = random.Random(number)
        while not self._stopping.is_set():
            request_id = uuid4().hex
            usage = f"{chance.randint(1, 5000)},{chance.randint(1, 500)}"
            try:
                self._one(request_id, f"hello [[sandbox usage={usage} chunks=3 gap=5]]", stream=chance.random() < 0.5)
            except requests.RequestException:
                self.broken.add(request_id)
                time.sleep(0.05)

    def _one(self, request_id: str, content: str, *, stream: bool) -> None:
        with self._product.chat(content, request_id, timeout=10, stream=stream) as response:
            if response.status_code != 200:
                self.refused[response.status_code] += 1
                time.sleep(0.02)
            elif not stream or response.content.endswith(b"data: [DONE]\n\n"):
                self.answered.add(request_id)
            else:
                self.broken.add(request_id)

    def go_on(self) -> None:
        """Wait until a hundred more requests are answered."""
        goal = len(self.answered) + 100
        eventually(lambda: len(self.answered) >= goal)

    def stop(self) -> None:
        """Let everybody finish."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)


def test_every_answer_is_logged_and_charged_once_whoever_dies(product: Product) -> None:
    load = Load(product, clients=6)
    load.go_on()
    for victim in (("manage.py", "settler"), MONEY_STORE, ("gunicorn",), ("manage.py", "settler")):
        product.kill(*victim)
        load.go_on()
    load.stop()
    eventually(lambda: requests.get(product.url, timeout=60).status_code == 200)

    # A request that hangs when its worker dies was admitted and is never answered: it has a row that says so.
    hanging = uuid4().hex
    asking = threading.Thread(target=ask_in_vain, args=(product, hanging))
    asking.start()
    eventually(lambda: product.sandbox("GET", "/sandbox/requests", tag=hanging)["requests"])
    product.kill("gunicorn")
    asking.join(30)
    (row,) = eventually(lambda: rows_of(product, hanging), patience=60)
    assert (row["unifiedFinishReason"], row["hasError"], row["cost"]) == ("gateway_error", True, None)

    logs = settled_logs(product)
    rows = Counter(row["requestId"] for row in logs)
    assert len(load.answered) > 200
    assert {request_id: rows[request_id] for request_id in load.answered if rows[request_id] != 1} == {}
    assert {request_id for request_id in rows if rows[request_id] > 1} == set()
    cost = sum((Decimal(str(row["cost"] or 0)) for row in logs), Decimal(0))
    assert Decimal(product.credits()) == Decimal(100) - cost
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"


def ask_in_vain(product: Product, tag: str) -> None:
    """Ask for an answer that never comes."""
    with pytest.raises(requests.RequestException):
        product.chat(f"[[sandbox hang=head tag={tag}]]", tag, timeout=20)


def rows_of(product: Product, request_id: str) -> list[dict[str, object]]:
    """Return the log rows of a request."""
    return [row for row in product.all_logs() if row["requestId"] == request_id]


def settled_logs(product: Product) -> list[dict[str, object]]:
    """Return all log rows once nothing waits any more."""

    def depth() -> bool:
        return product.metrics().get("gateway_outbox_depth") == 0

    eventually(depth)
    # The gauge is of the last second.
    time.sleep(1)
    eventually(depth)
    return product.all_logs()


@pytest.mark.parametrize("store", [("postgres",), MONEY_STORE], ids=["postgres", "valkey-server"])
def test_while_a_store_hangs_requests_are_answered_and_none_is_lost(product: Product, store: tuple[str, ...]) -> None:
    asked = [uuid4().hex for _ in range(6)]
    assert product.chat("warm", asked[0]).status_code == 200
    hanging = product.processes(*store)
    for pid in hanging:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert [product.chat("hi", request_id).status_code for request_id in asked[1:4]] == [200, 200, 200]
        assert requests.get(product.url, timeout=60).status_code == 503
    finally:
        for pid in hanging:
            os.kill(pid, signal.SIGCONT)
    assert [product.chat("hi", request_id).status_code for request_id in asked[4:]] == [200, 200]
    rows = eventually(lambda: len(found := settled_logs(product)) == len(asked) and found)
    assert {row["requestId"] for row in rows} == set(asked)
    cost = sum((Decimal(str(row["cost"])) for row in rows), Decimal(0))
    assert Decimal(product.credits()) == Decimal(100) - cost
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
