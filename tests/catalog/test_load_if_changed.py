"""The record of the last load: a load is skipped only where it would change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.files import InvalidFiles
from apps.catalog.load import Loaded, load_if_changed
from apps.catalog.models import ModelProvider, Provider
from tests.catalog import stated
from tests.catalog.test_own_files import CHEAPER

pytestmark = pytest.mark.django_db

ALL = Loaded(stated.PROVIDER_COUNT, stated.MODEL_COUNT, stated.MAPPING_COUNT)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The file of the record; there is none yet."""
    return tmp_path / "catalog.digest"


@pytest.fixture
def own(tmp_path: Path, settings: Any) -> Path:
    """An operator's folder without files."""
    folder = tmp_path / "own"
    (folder / "providers").mkdir(parents=True)
    settings.CATALOG_DIR = folder
    return folder


@pytest.fixture
def known(loaded: None, record: Path) -> Path:
    """The record of a load that changed nothing."""
    assert load_if_changed(record) == ALL
    return record


def test_a_second_load_is_skipped_also_after_one_that_added_all(empty: None, record: Path) -> None:
    assert load_if_changed(record) == replace(ALL, added=ALL.providers + ALL.models + ALL.mappings)
    assert [load_if_changed(record), load_if_changed(record)] == [None, None]
    assert [path.name for path in record.parent.iterdir()] == ["catalog.digest"]


@pytest.mark.parametrize("lost", ["", "nonsense", b"\xff\xfe"])
def test_a_lost_record_costs_one_load(known: Path, lost: str | bytes) -> None:
    known.write_bytes(lost if isinstance(lost, bytes) else lost.encode())
    assert [load_if_changed(known), load_if_changed(known)] == [ALL, None]


def test_a_file_of_the_operator_is_noticed_when_it_comes_changes_and_goes(
    own: Path, loaded: None, record: Path
) -> None:
    assert [load_if_changed(record), load_if_changed(record)] == [ALL, None]
    file = own / "providers" / "groq.toml"
    for text, changed in ((CHEAPER, 1), (CHEAPER.replace("0.05", "0.06"), 1), ("", 1)):
        file.write_text(text) if text else file.unlink()
        assert load_if_changed(record) == replace(ALL, changed=changed)
        assert load_if_changed(record) is None


def test_a_file_that_cannot_be_loaded_is_refused_at_every_start(own: Path, loaded: None, record: Path) -> None:
    assert load_if_changed(record) == ALL
    stray = own / "stray.toml"
    stray.symlink_to("nowhere")
    for _ in range(2):
        with pytest.raises(InvalidFiles, match=r"stray\.toml: must be in the folder"):
            load_if_changed(record)
    stray.unlink()
    assert load_if_changed(record) is None


def test_code_that_reads_files_is_noticed(loaded: None, record: Path, tmp_path: Path) -> None:
    code = tmp_path / "code" / "inner"
    code.mkdir(parents=True)
    (code / "reader.py").write_text("VERSION = 1\n")
    assert [load_if_changed(record, [code.parent]), load_if_changed(record, [code.parent])] == [ALL, None]
    (code / "reader.py").write_text("VERSION = 2\n")
    assert [load_if_changed(record, [code.parent]), load_if_changed(record, [code.parent])] == [ALL, None]


def test_a_version_of_the_product_is_noticed(known: Path, settings: Any) -> None:
    settings.VERSION = "99.0"
    assert [load_if_changed(known), load_if_changed(known)] == [ALL, None]


def test_rows_that_were_changed_or_deleted_are_repaired(known: Path) -> None:
    Provider.objects.filter(id="groq").update(name="Grok")
    ModelProvider.objects.filter(provider_id="cerebras").delete()
    done = load_if_changed(known)
    assert done is not None
    assert (done.changed, done.added > 0, Provider.objects.get(id="groq").name) == (1, True, "Groq")
    assert ModelProvider.objects.filter(provider_id="cerebras").count() == done.added
    assert load_if_changed(known) is None


def test_what_an_operator_changed_is_kept_and_recorded(known: Path) -> None:
    Provider.objects.filter(id="groq").update(active=False)
    assert [load_if_changed(known), load_if_changed(known)] == [ALL, None]
    assert Provider.objects.get(id="groq").active is False
