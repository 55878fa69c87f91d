"""A second start on the same home repeats nothing that has not changed, and notices what has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.test_own_files import CHEAPER
from tests.stack.product import Product

pytestmark = pytest.mark.stack


def test_a_second_start_runs_no_migration_and_no_load_and_a_changed_file_is_noticed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "providers").mkdir(parents=True)
    first = Product(tmp_path / "home", CATALOG_DIR=str(own))
    assert first.stop() == 0
    second = Product(tmp_path / "home", CATALOG_DIR=str(own))
    try:
        assert second.chat("hello").status_code == 200
        assert second.demo["apiKey"] == first.demo["apiKey"]
        assert [line for line in second.output if line.startswith(("database: ", "catalog: "))] == [
            "database: up to date\n",
            "catalog: up to date\n",
        ]
        (own / "providers" / "groq.toml").write_text(CHEAPER)
        _, catalog, *_ = second.manage("prepare").splitlines()
        assert catalog.endswith("; 0 added, 1 changed, 0 withdrawn")
    finally:
        assert second.stop() == 0
