"""The catalog in the tables, and a small one made by hand."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from apps.catalog import catalog_cache, files
from apps.catalog.models import Model, ModelProvider, Provider
from apps.catalog.offers import Catalog
from apps.kernel.valkey import generation
from tests.support.shipped_catalog import stock_with_ends


@pytest.fixture
def loaded(db: None) -> None:
    """The data files in the tables, with all they state."""
    stock_with_ends()


@pytest.fixture
def empty(db: None) -> None:
    """No catalog in the tables."""
    for table in (ModelProvider, Model, Provider):
        table.objects.all().delete()


@pytest.fixture
def catalog(loaded: None) -> Catalog:
    """The copy in memory, read after the data files were loaded."""
    return catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the data files, to be spoiled."""
    for name in ("providers", "families"):
        copytree(files.FOLDER / name, tmp_path / name)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    """Replace the first `old` in a file that must have it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
