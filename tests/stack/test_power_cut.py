"""A power cut: everything dies at once, and the store comes back a second older than the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import pytest
from redis import Redis

from tests.stack.product import Product, eventually

pytestmark = [pytest.mark.stack, pytest.mark.long]


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """A stack of the processes to stop at the end."""
    with ExitStack() as ends:
        yield ends


def held(folder: Path, organization: str) -> int:
    """Return the amount held on the organization's credits, in 1e-9 USD."""
    store = Redis.from_url(json.loads((folder / "run" / "stores.json").read_text())["redis_url"], decode_responses=True)
    return int(store.hget(f"balance:organization:{organization}", "held") or 0)


def test_what_the_store_forgot_is_charged_once_and_holds_nothing(
    tmp_path_factory: pytest.TempPathFactory, ends: ExitStack
) -> None:
    folder = tmp_path_factory.mktemp("power")
    first = Product(folder)
    ends.callback(first.cut)
    organization = first.demo["organizationId"]
    (written,) = (folder / "valkey" / "appendonlydir").glob("*.incr.aof")

    assert first.chat("before", "before").status_code == 200
    # Under way when the disk had the store's data for the last time.
    under_way = first.chat("[[sandbox usage=3000,300 chunks=20 gap=50]]", "under-way", stream=True)
    assert under_way.status_code == 200
    on_disk = written.stat().st_size
    assert under_way.content.endswith(b"data: [DONE]\n\n")
    assert first.chat("[[sandbox usage=1000,100]]", "after").status_code == 200
    asked = {"before", "under-way", "after"}
    eventually(lambda: {row["requestId"] for row in first.all_logs()} == asked)
    credits = first.credits()
    first.cut()
    with written.open("r+b") as file:
        file.truncate(on_disk)

    again = Product(folder)
    ends.callback(again.stop)
    assert held(folder, organization) > 0
    # Its worker is gone: the note of the request under way is swept, and finds the row that is there.
    eventually(lambda: held(folder, organization) == 0, patience=60)
    rows = again.all_logs()
    assert sorted(row["requestId"] for row in rows) == sorted(asked)
    assert [row["hasError"] for row in rows] == [False] * 3
    assert again.credits() == credits
    assert Decimal(credits) == Decimal(100) - sum(Decimal(str(row["cost"])) for row in rows)
    assert again.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
    assert again.chat("afterwards").status_code == 200
