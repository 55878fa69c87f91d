"""The product on a Valkey Cluster, which loses the primary that has the balances and the records on their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_project import embedded
from gateway_project.configuration import env
from tests.stack.product import Product, eventually
from tests.support.valkey_cluster import ValkeyCluster

pytestmark = pytest.mark.stack


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ValkeyCluster]:
    made = ValkeyCluster(tmp_path / "cluster", durable=True)
    yield made
    made.close()


@pytest.fixture
def product(tmp_path: Path, cluster: ValkeyCluster) -> Iterator[Product]:
    # Celery's queues are on a server by itself.
    with embedded.throw_away() as stores:
        broker = env.celery_broker_url(stores.redis_url, database=1)
        made = Product(tmp_path / "home", REDIS_URL=cluster.url, CELERY_BROKER_URL=broker, VALKEY_SHARDS="16")
        yield made
        made.stop()


def test_answers_are_logged_and_charged_once_whoever_is_the_primary(product: Product, cluster: ValkeyCluster) -> None:
    answered = [f"before-{number}" for number in range(20)]
    assert [product.chat("Hello", one).status_code for one in answered] == [200] * 20
    money = cluster.busiest_by(f"{{*}}:balance:organization:{product.demo['organizationId']}")
    assert money.startswith("{shard-")
    lost = cluster.primary_of(money)
    cluster.kill(lost)
    # Served within the allowance, or refused, until a replica takes over.
    meanwhile = [f"meanwhile-{number}" for number in range(20)]
    answered += [one for one in meanwhile if product.chat("Hello", one).status_code == 200]
    eventually(lambda: cluster.has_successor(money, lost))
    cluster.start(lost)
    cluster.wait_until_whole()
    eventually(lambda: product.chat("Hello", "probe").status_code == 200)
    after = [f"after-{number}" for number in range(20)]
    assert [product.chat("Hello", one).status_code for one in after] == [200] * 20
    answered += after

    def logged() -> Counter[str]:
        return Counter(row["requestId"] for row in product.all_logs() if row["requestId"] in set(answered))

    eventually(lambda: logged() == Counter(answered))
    assert product.manage("check_ledger").strip() == "Every balance equals the sum of its ledger entries."
