"""New models: which entries of a list are models to add, what they inherit, and what a person must decide."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.price_lists import Abilities, Listed, PriceList
from apps.catalog.proposals import NEW_MODEL, Proposal, compare
from tests.catalog.test_proposals import TODAY, catalog

OURS = """
[[models]]
id = "fox-1.5-mini"
prices = { input = 1, output = 4 }
temperature = false
dialect = "responses"
features = ["tools"]
[[models]]
id = "owl-3"
model_name = "lab/Owl-3"
prices = { input = 1, output = 4 }
[[models]]
id = "lynx-2"
model_name = "eu.lab.lynx-2-v1"
prices = { input = 1, output = 4 }
[[models]]
id = "raven-2-27b"
prices = { input = 1, output = 4 }
"""
CHAT = Abilities(128_000, 8_000, ("vision", "tools"), ("text", "image"))


def listed(name: str, source: str = "litellm", **changes: Any) -> PriceList:
    """A list with one model of OpenAI's."""
    usual: dict[str, Any] = {"prices": {"input": Decimal(2), "output": Decimal(6)}, "abilities": CHAT}
    return PriceList(source, [Listed("openai", name, **usual | changes)])


def new(folder: Path, *lists: PriceList) -> list[Proposal]:
    """Return the new models that the lists propose."""
    found = compare(catalog(folder, {"openai": OURS}), lists, TODAY)
    return [one for one in found.proposals if one.kind == NEW_MODEL]


def test_a_model_that_differs_from_another_in_its_version_is_new(tmp_path: Path) -> None:
    [proposal] = new(tmp_path, listed("fox-2-mini"))
    assert (proposal.name, proposal.family, proposal.reasons, proposal.disputed) == (
        "openai/fox-2-mini",
        "all",
        (),
        False,
    )
    assert proposal.entry == {
        "id": "fox-2-mini",
        "prices": {"input": Decimal(2), "output": Decimal(6)},
        "context": 128_000,
        "max_output": 8_000,
        "features": ["vision", "tools"],
        # As its sibling is asked.
        "temperature": False,
        "dialect": "responses",
    }
    assert proposal.model_entry == {
        "id": "fox-2-mini",
        "name": "fox-2-mini",
        "input_modalities": ["text", "image"],
        "output_modalities": ["text"],
        "context_length": 128_000,
        "max_output": 8_000,
    }
    assert [list(change) for change in proposal.changes] == [
        ["family", "-", "all"],
        ["input", "-", "2"],
        ["output", "-", "6"],
    ]


def test_a_providers_own_name_is_kept_beside_the_id(tmp_path: Path) -> None:
    [proposal] = new(tmp_path, listed("lab/Owl-4"))
    assert (proposal.model, proposal.entry["model_name"]) == ("owl-4", "lab/Owl-4")
    [proposal] = new(tmp_path, listed("raven-2.5-27b"))
    assert proposal.model == "raven-2.5-27b"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fox-1.5-mini", {}),
        ("FOX-1.5-mini", {}),
        ("wolf-2-mini", {}),
        ("fox-2-maxi", {}),
        # The provider's names are not the ids.
        ("eu.lab.lynx-3-v1", {}),
        # Another size than Raven 2's.
        ("raven-3-9b", {}),
        ("fox-2-mini-2026-11-01", {}),
        ("fox-20261101-mini", {}),
        ("fox-2-mini:free", {}),
        ("fox-2-mini\n[[models]]", {}),
        ("fox-2-mini", {"abilities": None}),
        ("fox-2-mini", {"fault": "input is NaN"}),
        ("fox-2-mini", {"deactivated": TODAY}),
    ],
)
def test_other_entries_are_no_new_models(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    assert new(tmp_path, listed(name, **changes)) == []


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"prices": {"input": Decimal(0), "output": Decimal(6)}}, ("costs 0 for input",)),
        ({"prices": {"input": Decimal(2)}}, ("costs 0 for output", "input costs more than output; they look swapped")),
        (
            {"prices": {"input": Decimal(4), "output": Decimal(6)}},
            ("input differs more than 3-fold from that of fox-1.5-mini",),
        ),
        ({"abilities": CHAT._replace(context=None)}, ("states no context",)),
    ],
)
def test_a_strange_price_needs_a_person(tmp_path: Path, changes: dict[str, Any], reasons: tuple[str, ...]) -> None:
    [proposal] = new(tmp_path, listed("fox-2-mini", **changes))
    assert proposal.reasons == reasons


def test_sources_that_disagree_on_a_new_model_are_named(tmp_path: Path) -> None:
    other = listed("fox-2-mini", "modelsdev", prices={"input": Decimal(2), "output": Decimal(7)})
    [proposal] = new(tmp_path, listed("fox-2-mini"), other)
    assert (proposal.sources, proposal.disputed) == (("litellm", "modelsdev"), True)
    assert proposal.reasons == ("sources disagree on output: litellm 6, modelsdev 7",)


def test_a_list_with_countless_models_is_cut_off(tmp_path: Path) -> None:
    entries = [
        Listed("openai", f"fox-{n}-mini", {"input": Decimal(2), "output": Decimal(6)}, abilities=CHAT)
        for n in range(2, 300)
    ]
    found = compare(catalog(tmp_path, {"openai": OURS}), [PriceList("litellm", entries)], TODAY)
    assert len(found.proposals) == 200
    assert found.notes[-1] == "more than 200 new models; the others are left out"


def test_a_later_end_comes_with_the_model(tmp_path: Path) -> None:
    [proposal] = new(tmp_path, listed("fox-2-mini", deactivated=date(2027, 5, 1)))
    assert proposal.entry["deactivated"] == date(2027, 5, 1)
