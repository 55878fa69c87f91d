"""A second start on the same home repeats nothing that has not changed, and notices what has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.test_own_files import CHEAPER
from tests.stack.product import Product

pytestmark = pytest.mark.stack


def set_up(product: Product) -> tuple[str, str]:
    """Return what the set-up said of the database and of the catalog; stop the server."""
    assert product.stop() == 0
    (database,) = [line.strip() for line in product.output if line.startswith("database: ")]
    (catalog,) = [line.strip() for line in product.output if line.startswith("catalog: ")]
    return database, catalog


def test_a_second_start_runs_no_migration_and_no_load_and_a_changed_file_is_noticed(tmp_path: Path) -> None:
    home, own = tmp_path / "home", tmp_path / "own"
    (own / "providers").mkdir(parents=True)
    first = Product(home, CATALOG_DIR=str(own))
    key = first.demo["apiKey"]
    set_up(first)
    second = Product(home, CATALOG_DIR=str(own))
    assert (second.demo["apiKey"], second.chat("hello").status_code) == (key, 200)
    assert set_up(second) == ("database: up to date", "catalog: up to date")
    (own / "providers" / "groq.toml").write_text(CHEAPER)
    third = Product(home, CATALOG_DIR=str(own))
    assert third.manage("load_catalog", "--diff") == "The tables say what the files say.\n"
    database, catalog = set_up(third)
    assert (database, catalog.endswith("; 0 added, 1 changed, 0 withdrawn")) == ("database: up to date", True)
