"""`catalog propose`: shows proposals, and writes and loads the accepted ones, all or none."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.catalog.accepted_prices import accept
from apps.catalog.catalog_reader import read_catalog
from apps.catalog.files import InvalidFiles, read_files
from apps.catalog.models import ModelProvider, PriceChange
from apps.catalog.price_lists import fetch_list
from apps.catalog.proposals import compare
from tests.catalog.test_proposals import TODAY

pytestmark = pytest.mark.django_db
GROQ = {"litellm_provider": "groq", "output_cost_per_token": 3e-07}


@pytest.fixture
def own(tmp_path: Path, settings: Any) -> Path:
    """An operator's folder, empty: `accepted` is made in it."""
    (tmp_path / "own").mkdir()
    settings.CATALOG_DIR = tmp_path / "own"
    return tmp_path / "own"


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A list: one price of Groq's falls, another falls to 0."""
    path = tmp_path / "list.json"
    listed = {
        "groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": 5e-08, "deprecation_date": "2099-01-31"},
        "groq/openai/gpt-oss-120b": GROQ | {"input_cost_per_token": 0, "output_cost_per_token": 6e-07},
    }
    path.write_text(json.dumps(listed))
    return f"litellm={path}"


def input_price(model: str) -> str:
    """The price of input at Groq in the tables."""
    return str(ModelProvider.objects.get(provider_id="groq", model_id=model).prices["input"])


def test_proposals_are_shown_and_nothing_changes(loaded: None, own: Path, source: str, capsys: Any) -> None:
    rows = list(ModelProvider.objects.order_by("pk").values())
    call_command("catalog", "propose", "--source", source)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("groq/")] == [
        "    input 0.15 -> 0",
        "    ! input falls to 0",
        "    input 0.075 -> 0.05",
        "    deactivated - -> 2099-01-31",
        "2 proposals, 1 for a person to decide (!)",
        "Nothing was changed. --apply PROVIDER/MODEL … or --accept accepts proposals.",
    ]
    assert list(own.iterdir()) == []
    assert list(ModelProvider.objects.order_by("pk").values()) == rows


def test_what_needs_no_person_is_accepted_loaded_and_in_the_history(
    loaded: None, own: Path, source: str, capsys: Any
) -> None:
    (own / "providers").mkdir()
    (own / "providers/xai.toml").write_text('website = "https://x.example"\n# ours\n')
    call_command("catalog", "propose", "--accept", "--source", source)
    assert "1 accepted in" in capsys.readouterr().out
    entry = {
        "id": "gpt-oss-20b",
        # Prices that the list does not have stay.
        "prices": {
            "input": Decimal("0.05"),
            "output": Decimal("0.3"),
            "cached_input": Decimal("0.0375"),
            "web_search": Decimal("0.005"),
        },
    }
    path = own / "accepted/providers/groq.toml"
    [written] = tomllib.loads(path.read_text(), parse_float=Decimal)["models"]
    assert str(written.pop("deactivated")) == "2099-01-31"
    assert written == entry
    assert (own / "providers/xai.toml").read_text() == 'website = "https://x.example"\n# ours\n'
    assert (input_price("gpt-oss-20b"), input_price("gpt-oss-120b")) == ("0.05", "0.15")
    [change] = PriceChange.objects.filter(author="catalog propose: litellm")
    assert (change.model, change.old["input"], change.new["input"]) == ("gpt-oss-20b", "0.075", "0.05")
    # Offers that are read from now on have the new price, so requests are billed by it.
    offers = read_catalog("1").models["gpt-oss-20b"].offers
    assert {offer.prices.input for offer in offers if offer.provider.id == "groq"} == {Decimal("0.05")}
    # The same list proposes it no more, and a further acceptance keeps it.
    call_command("catalog", "propose", "--apply", "groq/gpt-oss-120b", "--source", source)
    assert "1 proposals, 1 for a person" in capsys.readouterr().out
    assert (input_price("gpt-oss-20b"), input_price("gpt-oss-120b")) == ("0.05", "0")
    assert [one["id"] for one in tomllib.loads(path.read_text())["models"]] == ["gpt-oss-120b", "gpt-oss-20b"]


def test_an_operators_own_price_wins_and_is_not_proposed_over(
    loaded: None, own: Path, source: str, capsys: Any
) -> None:
    call_command("catalog", "propose", "--accept", "--source", source)
    (own / "providers").mkdir()
    (own / "providers/groq.toml").write_text('[[models]]\nid = "gpt-oss-20b"\nprices = { input = 0.07 }\n')
    call_command("load_catalog")
    assert input_price("gpt-oss-20b") == "0.07"
    capsys.readouterr()
    call_command("catalog", "propose", "--source", source)
    assert "gpt-oss-20b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--apply", "groq/gpt-oss-21b"], "no proposal for groq/gpt-oss-21b; nothing was changed"),
        (
            ["--apply", "groq/gpt-oss-20b", "--source", "openrouter={other}"],
            "openrouter: no model has a price; the document is not a list of this kind",
        ),
        (
            ["--apply", "groq/gpt-oss-20b", "--source", "modelsdev={other}"],
            "the sources disagree on groq/gpt-oss-20b; run again with one --source. Nothing was changed",
        ),
        (
            ["--source", "prices"],
            "--source must be KIND=PLACE with a kind of litellm, modelsdev, openrouter, llmgateway; it is 'prices'",
        ),
    ],
)
def test_a_refused_acceptance_changes_nothing(
    loaded: None, own: Path, source: str, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    other = {"groq": {"models": {"openai/gpt-oss-20b": {"cost": {"input": 0.06, "output": 0.3}}}}}
    (tmp_path / "other.json").write_text(json.dumps(other))
    given = [one.format(other=tmp_path / "other.json") for one in arguments]
    with pytest.raises(CommandError) as caught:
        call_command("catalog", "propose", "--source", source, *given)
    assert str(caught.value) == problem
    assert (list(own.iterdir()), input_price("gpt-oss-20b")) == ([], "0.075")


def test_nothing_is_accepted_without_a_folder(loaded: None, source: str) -> None:
    with pytest.raises(CommandError, match="CATALOG_DIR is not set; accepted prices are written there"):
        call_command("catalog", "propose", "--accept", "--source", source)


def test_files_are_as_before_when_the_catalog_would_be_invalid(own: Path, source: str) -> None:
    found = compare(read_files(own=own), [fetch_list("litellm", source.removeprefix("litellm="))], TODAY)
    accept(own, found.proposals[:1])
    path = own / "accepted/providers/groq.toml"
    before = path.read_text()
    # Another file of the folder is broken meanwhile.
    (own / "accepted/providers/xai.toml").write_text("[models]")
    with pytest.raises(InvalidFiles):
        accept(own, found.proposals[1:])
    assert path.read_text() == before
    assert sorted(one.name for one in path.parent.iterdir()) == ["groq.toml", "xai.toml"]
