"""The product with a read replica that is held back, killed and started again: pages are there all the time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stack.product import PROJECT, Product, eventually
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.replicated_postgres import ReplicatedPostgres

pytestmark = [pytest.mark.stack, pytest.mark.long]


@pytest.fixture
def servers() -> Iterator[ReplicatedPostgres]:
    made = ReplicatedPostgres()
    yield made
    made.close()


@pytest.fixture
def product(tmp_path: Path, servers: ReplicatedPostgres) -> Iterator[Product]:
    replica = {"DATABASE_REPLICA_URL": servers.replica.url, "DATABASE_REPLICA_MAX_LAG": "1"}
    made = Product(tmp_path / "home", DATABASE_URL=servers.primary.url, **replica)
    yield made
    made.stop()


def read_by(product: Product, source: str) -> float:
    return product.metrics().get(f'gateway_replica_reads_total{{source="{source}"}}', 0.0)


def told_of_replica(product: Product) -> tuple[str, str]:
    doctor = [sys.executable, "manage.py", "doctor", "--json"]
    done = subprocess.run(doctor, cwd=PROJECT, env=product.environment, capture_output=True, text=True, check=False)
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    (found,) = [one for one in findings if one["subject"] == "replica 1"]
    return found["state"], found["told"]


def test_logs_are_read_from_a_replica_and_from_the_primary_while_it_is_unfit(
    product: Product, servers: ReplicatedPostgres
) -> None:
    assert product.chat("Hello", "first").status_code == 200
    row = product.log_of("first")
    servers.catch_up()
    eventually(lambda: read_by(product, "replica") > 0)
    assert [one["requestId"] for one in product.get("/logs")["logs"]] == ["first"]
    # One row by its id is the primary's: the replica does not even have it.
    servers.replica.run("SELECT pg_wal_replay_pause()")
    eventually(lambda: servers.replica.run("SELECT pg_get_wal_replay_pause_state()") == [("paused",)])
    assert product.chat("Hello", "second").status_code == 200
    second = product.log_of("second")
    assert product.get(f"/logs/{second['id']}")["log"]["requestId"] == "second"
    assert servers.replica.run("SELECT request_id FROM request_log") == [("first",)]
    assert told_of_replica(product)[0] == "warning"
    behind = re.fullmatch(
        r"is more than 1 s behind the primary \(([0-9.]+) s, ([0-9,]+) bytes\); pages .*", told_of_replica(product)[1]
    )
    assert behind is not None
    assert float(behind[1]) > 1
    assert int(behind[2].replace(",", "")) > 100
    servers.replica.run("SELECT pg_wal_replay_resume()")

    servers.replica.kill()
    assert told_of_replica(product) == (
        "warning",
        "does not answer; pages that may be read from it are read from the primary",
    )
    before = read_by(product, "primary")
    assert [[one["requestId"] for one in product.get("/logs")["logs"]] for _ in range(5)] == [["second", "first"]] * 5
    assert read_by(product, "primary") == before + 5
    servers.replica.start()
    now = read_by(product, "replica")
    eventually(lambda: product.get("/logs") and read_by(product, "replica") > now)
    eventually(lambda: told_of_replica(product)[0] == "ok")
    assert product.get(f"/logs/{row['id']}")["log"]["requestId"] == "first"


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (Debian: apt install pgbouncer)")
def test_behind_pgbouncer_a_replica_is_read_by_web_workers_and_left_when_it_stands_still(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, servers: ReplicatedPostgres
) -> None:
    folder = tmp_path_factory.mktemp("pooler") / "replica"
    with pgbouncer(folder, servers.replica.url, "ignore_startup_parameters = options") as pooler:
        product = Product(tmp_path / "home", DATABASE_URL=servers.primary.url, DATABASE_REPLICA_URL=pooler.url)
        try:
            assert product.chat("Hello", "first").status_code == 200
            product.log_of("first")
            servers.catch_up()
            eventually(lambda: product.get("/logs") and read_by(product, "replica") > 0)
            assert told_of_replica(product)[0] == "ok"
            before = read_by(product, "primary")
            assert [one["requestId"] for one in product.get("/logs")["logs"]] == ["first"]
            servers.replica.hang()
            began = time.monotonic()
            assert [one["requestId"] for one in product.get("/logs")["logs"]] == ["first"]
            assert time.monotonic() - began < 6
            assert read_by(product, "primary") == before + 1
        finally:
            servers.replica.go_on()
            product.stop()
