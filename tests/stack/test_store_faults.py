"""A running server whose Valkey refuses, hangs or vanishes: who has no credits is not served, who has is within bounds,
and when Valkey is back all of it is recorded and charged once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from redis import Redis

from tests.stack.product import Product, eventually
from tests.stack.test_spending import Purse, assert_nothing_is_held, owner, purse_with_credits
from tests.store_faults import FAULTS, fault

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]

# What an answer costs, and what is reserved for it: 16,384 tokens and more.
SCRIPT = "usage=1000,200"
ALLOWANCE = Decimal("0.10")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server with one web worker, so that what it allows can be counted."""
    product = Product(
        tmp_path_factory.mktemp("faults"), RATE_LIMIT_ENTERPRISE="0", OFFLINE_ALLOWANCE_USD=str(ALLOWANCE)
    )
    yield product
    product.stop()


@pytest.fixture
def store(product: Product) -> Iterator[Redis]:
    """A connection of the test's own to the server's Valkey."""
    told = json.loads((Path(product.environment["GATEWAY_HOME"]) / "run" / "stores.json").read_text())
    connection: Redis = Redis.from_url(told["redis_url"], decode_responses=True)
    connection.ping()
    yield connection
    connection.close()


def at_once(purse: Purse, times: int) -> Counter[str]:
    with ThreadPoolExecutor(times) as clients:
        return Counter(clients.map(purse.ask, [f"{SCRIPT} latency=4000"] * times))


@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_served_without_an_answer_of_the_store_is_bounded_and_charged(
    product: Product, store: Redis, kind: str
) -> None:
    rich, poor, closed = (purse_with_credits(product) for _ in range(3))
    worst = rich.estimate()
    assert rich.ask(SCRIPT) == closed.ask(SCRIPT) == "answered"
    (cost,) = rich.costs()
    owner(product, "PATCH", f"/organization/{closed.organization_id}", outagePolicy="closed")
    empty(product, poor)
    assert poor.ask(SCRIPT) == "insufficient_credits"
    let_in = int(ALLOWANCE / worst)
    assert 1 <= let_in <= 20
    with fault(kind, store):
        assert [poor.ask(SCRIPT) for _ in range(3)] == ["insufficient_credits"] * 3
        assert closed.ask(SCRIPT) == "overloaded"
        # At once, so that each counts with its worst case.
        assert at_once(rich, 30) == {"answered": let_in, "overloaded": 30 - let_in}
        assert poor.ask(SCRIPT) == "insufficient_credits"
    assert len(rich.costs()) == 1 + let_in
    assert rich.credits() == 1 - (1 + let_in) * cost
    assert (len(poor.logs()), len(closed.logs())) == (0, 1)
    eventually(lambda: closed.ask(SCRIPT) == "answered", patience=20)
    assert_nothing_is_held(product)
    assert product.metrics()["gateway_store_silent"] == 0


def empty(product: Product, purse: Purse) -> None:
    """Leave an organization next to nothing, as a settler's charge would."""
    product.manage(
        "shell",
        "-c",
        "from decimal import Decimal; from uuid import UUID; from apps.billing import balances, ledger; "
        "from apps.kernel.ids import new_id; "
        f"moved = ledger.Charge(UUID('{purse.organization_id}'), new_id(), new_id(), Decimal('-0.9999'), Decimal(0)); "
        "balances.put(ledger.charge([moved]))",
    )
