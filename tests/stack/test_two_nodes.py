"""Two nodes, each with web worker, settler, worker and beat in a home of its own, on one PostgreSQL and one Valkey.

PostgreSQL is reached through PgBouncer in transaction mode where that is installed. Processes are killed under load;
nothing is lost and nothing counted twice. `NODES_SECONDS` makes it longer.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
import requests

from gateway_project import embedded
from tests.stack.books import books_of
from tests.stack.chaos import Door, Heard, Load, usage_in
from tests.stack.product import Product, eventually
from tests.stack.test_chaos import assert_every_row_is_charged_once, assert_everyone_has_one_row
from tests.support.pgbouncer import PROGRAM, PgBouncer, pgbouncer

SECONDS = float(os.environ.get("NODES_SECONDS", "6"))
CLIENTS = 4

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(300 + SECONDS * 5)]


@dataclass(frozen=True)
class Nodes:
    """Two nodes, and what stands before their database."""

    one: Product
    two: Product
    pooler: PgBouncer | None


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with ExitStack() as running:
        stores = running.enter_context(embedded.throw_away())
        folder = tmp_path_factory.mktemp("nodes")
        pooler = running.enter_context(pgbouncer(folder / "pooler", stores.database_url)) if PROGRAM else None
        if pooler is None:
            sys.__stderr__.write("\ntest_two_nodes: PgBouncer is not installed; the nodes go to PostgreSQL directly\n")
        shared = {
            "DATABASE_URL": pooler.url if pooler else stores.database_url,
            "REDIS_URL": stores.redis_url,
            "SECRET_KEY": "one secret of both nodes, for sessions and links",
            "API_KEY_PEPPER": "another secret of both nodes, for digests of keys",
            "ENCRYPTION_KEYS": "r4wPTm1ZpO1wO0mGm9Q1f3hQm8q0iJmXxY0m0l3h1zU=",
            "RATE_LIMIT_ENTERPRISE": "10000000",
            # Nothing is asked of a connection that PgBouncer would not know.
            "DATABASE_STATEMENT_TIMEOUT": "0",
        }
        one = Product(folder / "one", **shared)
        running.callback(one.stop)
        (folder / "two").mkdir()
        shutil.copy(folder / "one" / "demo.json", folder / "two" / "demo.json")
        two = Product(folder / "two", **shared)
        running.callback(lambda: two.stop())
        yield Nodes(one, two, pooler)


def test_whatever_is_killed_every_answer_is_logged_and_charged_once(nodes: Nodes) -> None:
    one, two = nodes.one, nodes.two
    door, chance = Door(one.demo["apiKey"], "sandbox/echo"), random.Random(1)
    loads = [Load(node, [door], CLIENTS, chance) for node in (one, two)]
    time.sleep(SECONDS / 3)
    one.kill("manage.py", "settler")
    if nodes.pooler is not None:
        nodes.pooler.kill()
        time.sleep(SECONDS / 6)
        nodes.pooler.start()
    time.sleep(SECONDS / 3)
    two.kill("gunicorn")
    two.kill("manage.py", "settler")
    time.sleep(SECONDS / 3)
    for load in loads:
        load.stop()
    # A change on one node takes effect on another within a second, as within a node.
    headers = {"Authorization": f"Bearer {one.demo['sessionToken']}"}
    (own,) = requests.get(f"{one.url}/keys/api", headers=headers, timeout=60).json()["apiKeys"]
    told = requests.patch(f"{one.url}/keys/api/{own['id']}", json={"status": "inactive"}, headers=headers, timeout=60)
    assert told.status_code == 200, told.text
    eventually(lambda: two.chat("hi").status_code == 401, patience=2)
    told = requests.patch(f"{one.url}/keys/api/{own['id']}", json={"status": "active"}, headers=headers, timeout=60)
    assert told.status_code == 200, told.text

    heard = loads[0].heard
    merge(heard, loads[1].heard)
    answered = eventually(lambda: answer if (answer := two.chat("hi")).status_code == 200 else None, patience=2)
    heard.costs[answered.headers["x-request-id"]] = Decimal(usage_in(answered.content)["cost_usd_total"])
    books = books_of(one)
    assert books.left == {}
    assert list(Path(two.environment["GATEWAY_HOME"], "spool").glob("*")) == []
    assert len(heard.costs) > 20
    assert_every_row_is_charged_once(books)
    assert_everyone_has_one_row(heard, books)
    assert one.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
    assert books.differences == {}
    assert heard.hung == set()
    assert set(heard.refused.values()) <= {503}


def merge(into: Heard, other: Heard) -> None:
    """Add the answers that clients of another node got."""
    into.costs.update(other.costs)
    into.refused.update(other.refused)
    for name in ("parts", "unreserved_parts", "failed", "broken", "hung"):
        getattr(into, name).update(getattr(other, name))
