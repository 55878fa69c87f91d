"""Price history: every change of a price is kept with who made it, and what a load would change can be seen first."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse

from apps.catalog import load as loader
from apps.catalog.catalog_cache import read_catalog
from apps.catalog.load import find_differences, load
from apps.catalog.models import ModelProvider, PriceChange
from apps.catalog.price_cards import write_card
from apps.catalog.price_history import card_of, history_of, steps_of
from apps.organizations.actions import create_operator
from tests.catalog.conftest import edit
from tests.catalog.price_forms import save_prices
from tests.support.cast import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def mapping(loaded: None) -> ModelProvider:
    """A mapping of a data file with a price for input."""
    row = ModelProvider.objects.filter(prices__input="0.05").first()
    assert isinstance(row, ModelProvider)
    return row


def dearer(folder: Path, mapping: ModelProvider) -> None:
    """Double the input price of a mapping in its file."""
    path = folder / "providers" / f"{mapping.provider_id}.toml"
    head, found, rest = path.read_text().partition(f'id = "{mapping.model_id}"\n')
    path.write_text(head + found + rest.replace("input = 0.05", "input = 0.10", 1))


def steps(row: ModelProvider) -> list[tuple[str, str | None, str | None, str]]:
    """Return what changed of a mapping's prices, newest first."""
    return [(*step, change.author) for change in history_of(row, 10) for step in steps_of(change)]


def test_a_load_keeps_what_a_price_was(mapping: ModelProvider, folder: Path) -> None:
    before = PriceChange.objects.count()
    load(folder)
    assert PriceChange.objects.count() == before, "nothing has changed"
    dearer(folder, mapping)
    load(folder)
    assert PriceChange.objects.count() == before + 1
    assert steps(mapping)[0] == ("Input", "0.05", "0.10", "load_catalog")


def test_a_difference_is_printed_and_nothing_is_done(
    mapping: ModelProvider, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert find_differences(folder) == []
    dearer(folder, mapping)
    rows = list(ModelProvider.objects.order_by("pk").values())
    changes = PriceChange.objects.count()
    [line] = find_differences(folder)
    assert line.startswith(f"~ mapping {mapping}: prices ")
    assert '"input": "0.05"' in line
    assert '"input": "0.10"' in line
    call_command("load_catalog", diff=True)
    assert capsys.readouterr().out == "The tables say what the files say.\n"
    monkeypatch.setattr(loader.find_differences, "__defaults__", (folder, None))
    with pytest.raises(SystemExit) as ended:
        call_command("load_catalog", diff=True)
    assert (ended.value.code, capsys.readouterr().out) == (1, f"{line}\n")
    assert list(ModelProvider.objects.order_by("pk").values()) == rows
    assert PriceChange.objects.count() == changes


def test_added_and_withdrawn_rows_are_told(mapping: ModelProvider, folder: Path) -> None:
    edit(folder / "providers" / f"{mapping.provider_id}.toml", f'id = "{mapping.model_id}"', 'id = "other-model"')
    edit(
        folder / "families" / f"{mapping.model.family}.toml",
        "[[models]]",
        '[[models]]\nid = "other-model"\nname = "Other"\ninput_modalities = ["text"]\noutput_modalities = ["text"]\n'
        "\n[[models]]",
    )
    assert find_differences(folder) == [
        f"+ mapping {mapping.provider_id}/other-model",
        f"- mapping {mapping}: no longer in any file",
        "+ model other-model",
    ]


def test_an_operator_sets_a_price_over_the_files(
    mapping: ModelProvider, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    path = reverse("admin:catalog_modelprovider_change", args=[mapping.pk])
    form = client.get(path).context["adminform"].form
    assert form.fields["override_input"].help_text == "USD per million tokens. File: 0.05."
    answers = {"priority": "1", "override_input": "0.07"}
    assert client.post(path, {**answers, "override_output": "20000"}).context["adminform"].form.errors
    assert steps(mapping)[0][3] != "op@example.com"
    assert save_prices(client, path, answers).status_code == 302
    mapping.refresh_from_db()
    assert mapping.price_overrides == {"input": "0.07"}
    assert steps(mapping)[0] == ("Input", "0.05", "0.07", "op@example.com")
    offers = read_catalog("1").models[mapping.model_id].offers
    assert Decimal("0.07") in {offer.prices.input for offer in offers}
    page = client.get(path)
    assert page.context["table"]["rows"][0][1:] == ("Input", "0.05", "0.07", "op@example.com")
    assert save_prices(client, path, {"priority": "1"}).status_code == 302
    mapping.refresh_from_db()
    assert mapping.price_overrides == {}
    assert steps(mapping)[0] == ("Input", "0.07", "0.05", "op@example.com")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("[]", "only tiers, service_tiers, regions, tools, search_sizes can be set here"),
        ('{"input": "1"}', "only tiers, service_tiers, regions, tools, search_sizes can be set here"),
        ('{"service_tiers": {"flex": {"inptu": "1"}}}', "unknown price `inptu`"),
        ('{"service_tiers": 5}', "Expected `object`"),
        ('{"tools": {"file_search": "-1"}}', "`tools.file_search` must be between 0 and 100"),
        ("{", "valid JSON"),
    ],
)
def test_prices_in_tables_that_cannot_be_meant_are_refused(mapping: ModelProvider, given: str, words: str) -> None:
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    path = reverse("admin:catalog_modelprovider_change", args=[mapping.pk])
    form = client.post(path, {"priority": "1", "override_tables": given}).context["adminform"].form
    assert words in str(form.errors["override_tables"])
    mapping.refresh_from_db()
    assert mapping.price_overrides == {}


def test_an_operator_sets_prices_in_tables(
    mapping: ModelProvider, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    path = reverse("admin:catalog_modelprovider_change", args=[mapping.pk])
    tables = {"service_tiers": {"flex": {"input": "0.02"}, "auto2": {}}, "tools": {"file_search": "0.0025"}}
    answers = {"priority": "1", "override_tables": json.dumps(tables)}
    assert save_prices(client, path, answers).status_code == 302
    mapping.refresh_from_db()
    assert mapping.price_overrides == tables
    assert [step[:3] for step in steps(mapping)[:3]] == [
        ("Input at service tier flex", None, "0.02"),
        ("Service tier auto2", None, "the usual prices"),
        ("Tool file_search", None, "0.0025 per call"),
    ]
    assert json.loads(client.get(path).context["adminform"].form["override_tables"].value()) == tables
    assert save_prices(client, path, {"priority": "1"}).status_code == 302
    mapping.refresh_from_db()
    assert mapping.price_overrides == {}


def test_prices_at_a_regional_address_are_shown_as_they_are_billed(
    mapping: ModelProvider, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    """Claude Opus 5.5 costs 4 USD in and 20 out, and a tenth more in regions."""
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west1")
    row = ModelProvider.objects.get(provider_id="vertex", model_id="claude-opus-5-5")
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    path = reverse("admin:catalog_modelprovider_change", args=[row.pk])
    assert client.get(path).context["adminform"].form.fields["override_input"].help_text == (
        "USD per million tokens. File: 4. Billed at the provider's address: 4.4; a price set here is billed as it is."
    )
    answers = {"priority": "1", "override_input": "3"}
    assert client.post(path, answers).context["adminform"].form.errors["__all__"][1] == (
        "A request with 10,000 tokens of prompt and 1,000 of answer: 0.066 USD → 0.052 USD."
    )
    assert save_prices(client, path, answers).status_code == 302
    assert steps(row)[0] == ("Input", "4.4", "3", "op@example.com")
    stored = history_of(row, 1)[0].new
    [offer] = [one for one in read_catalog("1").models["claude-opus-5-5"].offers if one.provider.id == "vertex"]
    assert stored == write_card(offer.prices)
    assert (stored["output"], stored["cached_input"], stored["web_search"]) == ("22.0", "0.22", "0.01")
    # The same offer elsewhere is billed by the file.
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "global")
    row.price_overrides = {}
    assert (card_of(row)["input"], card_of(row)["output"]) == ("4", "20")


def test_the_history_only_grows(mapping: ModelProvider) -> None:
    row = PriceChange.objects.create(provider="p", model="m", old={}, new={"input": "1"}, author="op")
    for change in (row.delete, row.save):
        with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
            change()
    assert PriceChange.objects.filter(pk=row.pk).exists()
