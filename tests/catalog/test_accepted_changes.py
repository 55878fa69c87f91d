"""Accepted changes: laid between the product's files and the operator's, and left out where they no longer apply."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.accepted_changes import AcceptedChange
from apps.catalog.files import InvalidFiles, Mapping, read_files, read_leniently
from tests.catalog.test_proposals import catalog

FOX = '[[models]]\nid = "fox"\nprices = { input = 1, output = 4 }\n'
# The files were checked on 2026-09-01.
SEEN = date(2026, 10, 1)
NEW: dict[str, Any] = {"id": "owl", "name": "Owl", "input_modalities": ["text"], "output_modalities": ["text"]}


def change(model: str = "fox", **entry: Any) -> AcceptedChange:
    """A change of a model of OpenAI's."""
    return AcceptedChange("openai", model, SEEN, entry)


def added(**entry: Any) -> AcceptedChange:
    """A new model of OpenAI's."""
    usual = {"id": "owl", "prices": {"input": Decimal(2)}}
    return AcceptedChange("openai", "owl", SEEN, usual | entry, "all", NEW)


def read(folder: Path, *changes: AcceptedChange, own: Path | None = None) -> dict[str, Mapping]:
    """Return the offers of OpenAI's with the changes."""
    catalog(folder, {"openai": FOX}) if not (folder / "providers/openai.toml").exists() else None
    [provider] = read_files(folder, own, changes).providers
    return {mapping.id: mapping for mapping in provider.models}


def test_prices_are_replaced_one_by_one_and_the_last_decision_wins(tmp_path: Path) -> None:
    first = change(prices={"input": Decimal("0.9"), "output": Decimal(3)})
    fox = read(tmp_path, first, change(prices={"input": Decimal("0.8")}), change(deactivated=date(2027, 1, 1)))["fox"]
    assert (fox.card.input, fox.card.output, fox.deactivated) == (Decimal("0.8"), Decimal(3), date(2027, 1, 1))


def test_a_file_that_was_checked_later_wins(tmp_path: Path) -> None:
    old = AcceptedChange("openai", "fox", date(2026, 8, 31), {"prices": {"input": Decimal("0.9")}})
    assert read(tmp_path, old)["fox"].card.input == 1
    same_day = AcceptedChange("openai", "fox", date(2026, 9, 1), {"prices": {"input": Decimal("0.9")}})
    assert read(tmp_path, same_day)["fox"].card.input == Decimal("0.9")


def test_the_operators_file_wins(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "providers").mkdir(parents=True)
    (own / "providers/openai.toml").write_text('[[models]]\nid = "fox"\nprices = { input = 0.7 }\n')
    fox = read(tmp_path, change(prices={"input": Decimal("0.9"), "output": Decimal(3)}), own=own)["fox"]
    assert (fox.card.input, fox.card.output) == (Decimal("0.7"), Decimal(3))


def test_a_new_model_is_added_and_can_change_later(tmp_path: Path) -> None:
    offers = read(tmp_path, added(), change("owl", prices={"output": Decimal(5)}))
    assert (offers["owl"].card.input, offers["owl"].card.output) == (Decimal(2), Decimal(5))
    [family] = read_files(tmp_path, accepted=[added()]).families
    assert [model.id for model in family.models] == ["fox", "owl"]


@pytest.mark.parametrize(
    "gone",
    [
        change("wolf", prices={"input": Decimal(1)}),
        AcceptedChange("nobody", "fox", SEEN, {"prices": {"input": Decimal(1)}}),
        AcceptedChange("nobody", "owl", SEEN, {"id": "owl"}, "all", NEW),
        AcceptedChange("openai", "owl", SEEN, {"id": "owl"}, "unknown", NEW),
        AcceptedChange("openai", "owl", SEEN, {"id": "owl", "model_name": "fox"}, "all", NEW),
        AcceptedChange("openai", "fox", SEEN, {"id": "fox", "prices": {"input": Decimal(9)}}, "all", {}),
    ],
)
def test_a_change_that_no_longer_applies_is_left_out(tmp_path: Path, gone: AcceptedChange) -> None:
    assert read(tmp_path, gone) == read(tmp_path)


def test_a_model_that_an_operator_added_meanwhile_is_not_added_twice(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for name, text in (
        ("providers/openai.toml", '[[models]]\nid = "owl"\nprices = { input = 3 }\n'),
        (
            "families/ours.toml",
            'family = "ours"\n[[models]]\nid = "owl"\nname = "Owl"\ninput_modalities = ["text"]\n'
            'output_modalities = ["text"]\n',
        ),
    ):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)
    assert read(tmp_path, added(), own=own)["owl"].card.input == 3


def test_an_invalid_change_is_an_error_and_a_whole_load_goes_without_it(tmp_path: Path) -> None:
    catalog(tmp_path, {"openai": FOX, "xai": FOX})
    broken = change(prices={"input": Decimal("0.1234567")})
    fine = AcceptedChange("xai", "fox", SEEN, {"prices": {"input": Decimal("0.9")}})
    with pytest.raises(InvalidFiles, match="accepted proposals for openai: models"):
        read_files(tmp_path, accepted=[broken, fine])
    read = {file.id: file.models[0].card.input for file in read_leniently(tmp_path, accepted=[broken, fine]).providers}
    assert read == {"openai": Decimal(1), "xai": Decimal("0.9")}
