"""A running server whose Valkey refuses, hangs or vanishes: who has no credits is not served, who has is within bounds,
and when Valkey is back all of it is recorded and charged once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from redis import Redis

from tests.stack.chaos import send_signal
from tests.stack.product import Product, eventually
from tests.stack.spending_keys import SpendingKey, assert_nothing_is_held, key_with_credits, manage
from tests.support.store_faults import FAULTS, fault

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

# The usage that sets an answer's cost; its reservation is for 16,384 tokens and more.
SCRIPT = "usage=1000,200"
ALLOWANCE = Decimal("0.10")
# The fault of every run; `gateway/admission/test_offline_admission.py` has all of them in one process.
QUICK = "timeout"


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


def at_once(spending_key: SpendingKey, times: int) -> Counter[str]:
    with ThreadPoolExecutor(times) as clients:
        return Counter(clients.map(spending_key.ask, [f"{SCRIPT} latency=4000"] * times))


@pytest.fixture(scope="module")
def rich(product: Product) -> SpendingKey:
    """A key of an organization with a dollar."""
    return key_with_credits(product)


@pytest.fixture(scope="module")
def poor(product: Product) -> SpendingKey:
    """A key of an organization with less than a request may cost."""
    spending_key = key_with_credits(product)
    empty(product, spending_key)
    return spending_key


def choose(product: Product, spending_key: SpendingKey, policy: str) -> None:
    """Set an organization's policy, and let the worker read it."""
    manage(product, spending_key.session, "PATCH", f"/organization/{spending_key.organization_id}", outagePolicy=policy)
    assert spending_key.ask(SCRIPT) == "answered"


# Its organizations are made once: a person may own three.
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == QUICK else pytest.mark.long) for kind in FAULTS]
)
def test_what_is_served_without_an_answer_of_the_store_is_bounded_and_charged(
    product: Product, store: Redis, rich: SpendingKey, poor: SpendingKey, kind: str
) -> None:
    # The allowance that earlier tests used counts for half a minute after them.
    eventually(lambda: product.metrics().get("gateway_offline_allowance_used_usd", 0) == 0, patience=90)
    choose(product, rich, "closed")
    assert poor.ask(SCRIPT) == "insufficient_credits"
    with fault(kind, store):
        assert rich.ask(SCRIPT) == "overloaded"
        assert [poor.ask(SCRIPT) for _ in range(3)] == ["insufficient_credits"] * 3
    eventually(lambda: rich.ask(SCRIPT) == "answered")
    choose(product, rich, "open")
    costs, credits, worst = rich.costs(), rich.credits(), rich.estimate()
    let_in = int(ALLOWANCE / worst)
    assert 1 <= let_in <= 20
    with fault(kind, store):
        # At once, so that each counts with its worst case.
        assert at_once(rich, 30) == {"answered": let_in, "overloaded": 30 - let_in}
        assert poor.ask(SCRIPT) == "insufficient_credits"
    # Records come out of the spool with a heartbeat; none comes after them.
    eventually(lambda: len(rich.logs()) == len(costs) + let_in, patience=60)
    assert len(rich.costs()) == len(costs) + let_in
    assert credits - rich.credits() == let_in * costs[0]
    assert poor.logs() == []
    assert_nothing_is_held(product)
    eventually(lambda: product.metrics()["gateway_store_silent"] == 0)


def test_answered_requests_whose_records_the_store_evicts_are_charged_once(
    product: Product, store: Redis, rich: SpendingKey
) -> None:
    assert rich.ask(SCRIPT) == "answered"
    costs, credits = rich.costs(), rich.credits()
    before = product.metrics().get("gateway_records_retransmitted_total", 0)
    settlers = product.processes("manage.py", "settler")
    send_signal(settlers, signal.SIGSTOP)
    # A stopped settler that waits for records is still handed the next one, and settles that by itself.
    handed = len(settlers)
    try:
        assert [rich.ask(SCRIPT) for _ in range(handed + 3)] == ["answered"] * (handed + 3)
        eventually(lambda: store.xlen("outbox") == handed + 3)
        evict_everything(store)
        assert store.xlen("outbox") == 0
    finally:
        send_signal(settlers, signal.SIGCONT)
    # With a worker's next heartbeat; none comes after them.
    eventually(lambda: len(rich.logs()) == len(costs) + handed + 3, patience=60)
    assert len(rich.costs()) == len(costs) + handed + 3
    assert credits - rich.credits() == (handed + 3) * costs[0]
    eventually(lambda: product.metrics()["gateway_records_retransmitted_total"] - before >= 3)
    assert_nothing_is_held(product)


def evict_everything(store: Redis) -> None:
    """Let the store have less memory than it needs, until it has thrown away every key."""
    store.config_set("maxmemory-policy", "allkeys-lru")
    try:
        store.config_set("maxmemory", "1")
        eventually(lambda: store.dbsize() == 0)
    finally:
        store.config_set("maxmemory", "0")
        store.config_set("maxmemory-policy", "noeviction")


def empty(product: Product, spending_key: SpendingKey) -> None:
    """Leave an organization next to nothing, as a settler's charge would."""
    product.manage(
        "shell",
        "-c",
        "from decimal import Decimal; from uuid import UUID; from apps.billing import balances, ledger; "
        "from apps.kernel.ids import new_id; "
        f"owner = UUID('{spending_key.organization_id}'); "
        "moved = ledger.Charge(owner, new_id(), new_id(), Decimal('-0.9999'), Decimal(0)); "
        "balances.publish_or_raise(ledger.charge([moved]))",
    )
