"""Processes die or hang under load at random times: nothing is lost or counted twice, the bill is exact to the digit.

`CHAOS_SEED` repeats a run's draws, `CHAOS_SECONDS` makes it longer: minutes of it by hand, before a release.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.stack.books import Books, books_of
from tests.stack.chaos import Door, Heard, Load, Storm, scheduled_work
from tests.stack.product import Product, eventually

SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
CLIENTS = 12
BEFORE = Decimal(100)

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240 + SECONDS * 2)]


@pytest.fixture
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of this test's own; its providers may be at private addresses, and its rates are never reached."""
    product = Product(
        tmp_path_factory.mktemp("chaos"),
        WEB_WORKERS="2",
        RATE_LIMIT_ENTERPRISE="10000000",
        GATEWAY_ALLOW_PRIVATE_ADDRESSES="true",
    )
    yield product
    product.stop()


def test_every_answer_is_logged_and_charged_once_whoever_dies_and_whenever(product: Product) -> None:
    seed = os.environ.get("CHAOS_SEED") or str(random.SystemRandom().randrange(10**9))
    sys.stdout.write(f"CHAOS_SEED={seed}\n")
    chance = random.Random(seed)
    doors = doors_of(product)
    load, storm = Load(product, doors, CLIENTS, chance), Storm(product, chance)
    with scheduled_work(product):
        storm.rage(SECONDS)
    load.stop()
    eventually(lambda: requests.get(product.url, timeout=60).status_code == 200, patience=60)
    books = books_of(product)
    sys.stdout.write(told(load.heard, storm, books))

    assert books.left == {}
    assert_everyone_has_one_row(load.heard, books)
    assert_every_row_is_charged_once(books)
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
    assert books.differences == {}
    assert books.tasks_done >= 1
    # No client waited forever, and none got an internal error where a store or process was away.
    assert load.heard.hung == set()
    assert set(load.heard.refused.values()) <= {503}


def doors_of(product: Product) -> list[Door]:
    """Return ways in: paid from credits, with answers that are kept, and with a provider key of one's own.

    The organization stores requests and answers, which costs as well.
    """
    demo = product.demo
    organization = demo["organizationId"]
    manage(product, "PATCH", f"/organization/{organization}", retentionLevel="retain")
    keeping = {"mode": "credits", "cachingEnabled": True, "cacheDurationSeconds": 60}
    manage(
        product,
        "POST",
        "/keys/provider?validate=false",
        provider="custom",
        providerName="ours",
        baseUrl=f"{sandbox_of(product)}/v1",
        token="sk-of-ours",
        organizationId=organization,
    )
    return [
        Door(demo["apiKey"], "sandbox/echo"),
        Door(key_for(product, name="keeping", **keeping), "sandbox/echo"),
        Door(demo["apiKey"], "sandbox/echo"),
        Door(key_for(product, name="own", mode="api-keys"), "custom:ours/echo"),
    ]


def sandbox_of(product: Product) -> str:
    """Return the address of the product's own sandbox, by a name that is no provider's of the service."""
    (pid,) = product.processes("apps.sandbox", "--port")
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return f"http://localhost:{words[words.index(b'--port') + 1].decode()}"


def key_for(product: Product, **project: Any) -> str:
    """Return the token of an API key of a new project."""
    made = manage(product, "POST", "/projects", organizationId=product.demo["organizationId"], **project)["project"]
    return str(manage(product, "POST", "/keys/api", description="chaos", projectId=made["id"])["apiKey"]["token"])


def manage(product: Product, method: str, path: str, **body: Any) -> Any:
    """Ask management as the demo organization's owner."""
    headers = {"Authorization": f"Bearer {product.demo['sessionToken']}"}
    response = requests.request(method, product.url + path, json=body, headers=headers, timeout=20)
    assert response.ok, response.text
    return response.json()


def assert_everyone_has_one_row(heard: Heard, books: Books) -> None:
    """Assert that each answer states the cost in its row, and that each admitted request has one row.

    A request without an answer may have been admitted or not. One that was admitted while the store was away and whose
    worker died before the end may have left no trace.
    """
    rows = Counter(row.request_id for row in books.rows)
    assert [request_id for request_id, number in rows.items() if number > 1] == []
    costs = {row.request_id: row.cost for row in books.rows}
    assert {request_id: costs.get(request_id) for request_id in heard.costs} == heard.costs
    assert (heard.parts | heard.failed) - set(rows) == set()
    assert set(rows) & set(heard.refused) == set()
    maybe = heard.broken | heard.hung | heard.unreserved_parts | heard.parts | heard.failed
    assert set(rows) - set(heard.costs) - maybe == set()
    lost = {row.request_id for row in books.rows if row.swept or row.finish == "upstream_error"}
    assert lost & set(heard.costs) == set()
    assert sum(row.cost for row in books.rows if row.request_id in heard.failed) == 0


def assert_every_row_is_charged_once(books: Books) -> None:
    """Assert that the ledger says what the log says, and that balances fell and rose by just that."""
    expected: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}
    usage: defaultdict[str, Decimal] = defaultdict(Decimal)
    for row in books.rows:
        usage[row.key] += row.cost
        if row.cost:
            expected["usage", row.id] = (-row.cost if row.mode == "credits" else Decimal(0), row.cost)
        if row.storage:
            expected["storage", row.id] = (-row.storage, Decimal(0))
    assert {one: moved for one, moved in books.ledger.items() if one[0] != "gift"} == expected
    paid = sum(row.cost for row in books.rows if row.mode == "credits") + sum(row.storage for row in books.rows)
    assert BEFORE - books.credits == paid
    assert {key: amount for key, amount in books.usage.items() if amount} == {k: v for k, v in usage.items() if v}


def told(heard: Heard, storm: Storm, books: Books) -> str:
    """Return the figures of a run."""
    untraced = heard.unreserved_parts - {row.request_id for row in books.rows}
    finishes = Counter(f"{row.finish}{' (swept)' if row.swept else ''}" for row in books.rows)
    return "\n".join(
        [
            f"strikes: {dict(storm.strikes)}",
            f"answered {len(heard.costs)}, in part {len(heard.parts)} (+{len(heard.unreserved_parts)} unreserved, "
            f"of which {len(untraced)} without a row), "
            f"failed {len(heard.failed)}, refused {dict(Counter(heard.refused.values()))}, broken {len(heard.broken)}, "
            f"hung {len(heard.hung)}, slowest {heard.slowest:.1f} s",
            f"rows {len(books.rows)}: {dict(finishes)}",
            f"costs {sum(row.cost for row in books.rows)}, storage {sum(row.storage for row in books.rows)}, credits "
            f"{books.credits}",
            f"left {books.left}, differences {books.differences}, reconciled by tasks {books.tasks_done}\n",
        ]
    )
