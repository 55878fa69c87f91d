"""The product on a PostgreSQL primary and its replica, by one URL: the primary is killed, and no process restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.books import books_of
from tests.stack.product import Product, eventually
from tests.support.replicated_postgres import ReplicatedPostgres

pytestmark = pytest.mark.stack


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[ReplicatedPostgres]:
    made = ReplicatedPostgres(synchronous=request.param)
    yield made
    made.close()


@pytest.fixture
def product(tmp_path: Path, servers: ReplicatedPostgres) -> Iterator[Product]:
    made = Product(tmp_path / "home", DATABASE_URL=servers.url)
    yield made
    made.stop()


@pytest.mark.parametrize("servers", [True], indirect=True, ids=["synchronous"])
def test_every_process_goes_on_with_the_new_primary(product: Product, servers: ReplicatedPostgres) -> None:
    processes = {words: product.processes(*words) for words in (("gunicorn",), ("settler",), ("celery", "worker"))}
    answered = [f"before-{number}" for number in range(20)]
    assert [product.chat("Hello", one).status_code for one in answered] == [200] * 20
    # In the middle of their settlement.
    servers.primary.kill()
    meanwhile = [f"meanwhile-{number}" for number in range(20)]
    answered += [one for one in meanwhile if product.chat("Hello", one).status_code == 200]
    servers.promote()
    after = [f"after-{number}" for number in range(20)]
    assert [product.chat("Hello", one).status_code for one in after] == [200] * 20
    answered += after
    # Known keys are served all the time, from copies read before.
    assert len(answered) == 60

    def logged() -> Counter[str]:
        return Counter(row["requestId"] for row in product.all_logs())

    eventually(lambda: logged() == Counter(answered), patience=60)
    # The worker takes its part in this.
    books = books_of(product)
    assert (books.left, books.differences, books.tasks_done > 0) == ({}, {}, True)
    assert "Every balance equals" in product.manage("check_ledger")
    assert {words: product.processes(*words) for words in processes} == processes
    # Had the old primary come back, no process would write to it.
    assert servers.replica.run("SELECT count(*) FROM request_log") == [(60,)]


@pytest.mark.long
@pytest.mark.parametrize("servers", [False], indirect=True, ids=["asynchronous"])
def test_what_an_asynchronous_replica_did_not_have_is_lost_with_its_charges_and_nothing_else(
    product: Product, servers: ReplicatedPostgres
) -> None:
    kept = [f"kept-{number}" for number in range(10)]
    assert [product.chat("Hello", one).status_code for one in kept] == [200] * 10
    eventually(lambda: servers.primary.run("SELECT count(*) FROM request_log") == [(10,)])
    servers.catch_up()
    before = product.credits()
    servers.stop_sending()
    lost = [f"lost-{number}" for number in range(10)]
    assert [product.chat("Hello", one).status_code for one in lost] == [200] * 10
    eventually(lambda: servers.primary.run("SELECT count(*) FROM request_log") == [(20,)])
    assert product.credits() != before
    servers.fail_over()
    eventually(lambda: product.credits() == before)
    after = [f"after-{number}" for number in range(10)]
    assert [product.chat("Hello", one).status_code for one in after] == [200] * 10
    eventually(lambda: servers.replica.run("SELECT count(*) FROM request_log") == [(20,)])
    books = books_of(product)
    assert Counter(row.request_id for row in books.rows) == Counter(kept + after)
    charged = {key: amounts for key, amounts in books.ledger.items() if key[0] == "usage"}
    assert charged == {("usage", row.id): (-row.cost, row.cost) for row in books.rows}
    # Copies of balances in Valkey that knew of more are void.
    assert (books.left, books.differences) == ({}, {})
    assert "Every balance equals" in product.manage("check_ledger")
    assert ", changed 0, corrected the held amount of 0" in product.manage("resync_balances")
