"""The product on a primary that sentinels name, which is killed: its replica takes over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.product import Product, eventually
from tests.support.valkey_sentinels import ValkeySentinels

pytestmark = pytest.mark.stack


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ValkeySentinels]:
    made = ValkeySentinels(tmp_path / "valkey")
    yield made
    made.close()


@pytest.fixture
def product(tmp_path: Path, servers: ValkeySentinels) -> Iterator[Product]:
    made = Product(tmp_path / "home", REDIS_URL=servers.url, CELERY_BROKER_URL="")
    yield made
    made.stop()


def test_answers_are_logged_and_charged_once_across_a_failover(product: Product, servers: ValkeySentinels) -> None:
    answered = [f"before-{number}" for number in range(20)]
    assert [product.chat("Hello", one).status_code for one in answered] == [200] * 20
    lost = servers.primary()
    servers.kill(lost)
    # Served within the allowance, or refused, until the replica takes over.
    meanwhile = [f"meanwhile-{number}" for number in range(20)]
    answered += [one for one in meanwhile if product.chat("Hello", one).status_code == 200]
    eventually(lambda: servers.has_successor(lost), patience=60)
    eventually(lambda: product.chat("Hello", "probe").status_code == 200)
    # The old primary comes back with its data, and the sentinels make it a replica.
    servers.start(lost)
    eventually(servers.is_whole, patience=60)
    after = [f"after-{number}" for number in range(20)]
    assert [product.chat("Hello", one).status_code for one in after] == [200] * 20
    answered += after

    def logged() -> Counter[str]:
        return Counter(row["requestId"] for row in product.all_logs() if row["requestId"] in set(answered))

    eventually(lambda: logged() == Counter(answered), patience=60)
    assert "Every balance equals" in product.manage("check_ledger")
