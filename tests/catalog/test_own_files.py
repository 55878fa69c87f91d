"""An operator's folder of data files: merged by key into the product's, and read as strictly."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from apps.catalog.catalog_buttons import ReloadQuestion
from apps.catalog.files import InvalidFiles, Mapping, ProviderFile, read_files
from apps.catalog.load import find_differences, load
from apps.catalog.models import Model, ModelProvider, PriceChange, Provider
from apps.kernel.prices import PriceCard
from apps.organizations.actions import create_operator
from tests.support.cast import PASSWORD

ACME = """
id = "acme"
name = "Acme"
dialect = "openai"
auth = "bearer"
base_url = "https://api.acme.example/v1"
api_key_env = "ACME_API_KEY"
checked = 2026-11-20

[[models]]
id = "fox-1"
prices = { input = 0.15, output = 0.6 }
"""
FOX = """
family = "fox"

[[models]]
id = "fox-1"
name = "Fox 1"
owned_by = "acme"
input_modalities = ["text"]
output_modalities = ["text"]
"""
NAMED_TWICE = """
family = "a"

[[models]]
id = "fox-2"
name = "Fox 2"
aliases = ["gpt-4o"]
input_modalities = ["text"]
output_modalities = ["text"]
"""
CHEAPER = '[[models]]\nid = "gpt-oss-20b"\nprices = { input = 0.05, output = 0.2 }\n'


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """An operator's folder, empty."""
    for name in ("providers", "families"):
        (tmp_path / name).mkdir()
    return tmp_path


def provider(own: Path | None, name: str) -> ProviderFile:
    """A provider's file, with an operator's changes."""
    return next(file for file in read_files(own=own).providers if file.id == name)


def groq(own: Path | None, model: str) -> Mapping:
    """A model at Groq, with an operator's changes."""
    return next(entry for entry in provider(own, "groq").models if entry.id == model)


def test_a_new_provider_and_family_join_the_products(own: Path) -> None:
    (own / "providers/acme.toml").write_text(ACME)
    (own / "families/fox.toml").write_text(FOX)
    usual, read = read_files(), read_files(own=own)
    assert [file for file in read.providers if file.id != "acme"] == usual.providers
    assert [file for file in read.families if file.family != "fox"] == usual.families
    [fox] = provider(own, "acme").models
    assert fox.card == PriceCard(input=Decimal("0.15"), output=Decimal("0.6"))


def test_an_operators_key_replaces_the_products_and_nothing_else_changes(own: Path) -> None:
    usual = provider(None, "groq")
    (own / "providers/groq.toml").write_text(f'base_url = "https://proxy.example/groq"\n{CHEAPER}')
    changed = provider(own, "groq")
    assert (changed.base_url, changed.name, changed.facts) == ("https://proxy.example/groq", usual.name, usual.facts)
    assert [entry.id for entry in changed.models] == [entry.id for entry in usual.models]
    before, after = groq(None, "gpt-oss-20b"), groq(own, "gpt-oss-20b")
    # Prices are replaced one by one: one that the operator does not state is not lost.
    assert before.prices["cached_input"] == Decimal("0.0375")
    assert after.prices == before.prices | {"input": Decimal("0.05"), "output": Decimal("0.2")}
    assert (after.context, after.features, after.service_tiers) == (
        before.context,
        before.features,
        before.service_tiers,
    )
    assert groq(own, "gpt-oss-120b") == groq(None, "gpt-oss-120b")


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("providers/groq.toml", CHEAPER.replace("input", "inptu"), "models[gpt-oss-20b]: unknown price `inptu`"),
        ("providers/groq.toml", f"{CHEAPER}\n{CHEAPER}", "models[gpt-oss-20b]: the file has this model twice"),
        ("providers/groq.toml", 'colour = "red"', "Object contains unknown field `colour`"),
        ("providers/groq.toml", "[models]\nid = 1", "each model must be a table under [[models]]"),
        ("providers/groq.toml", "models = [1]", "each model must be a table under [[models]]"),
        ("providers/groq.toml", '[[models]]\nid = "fox-9"', "models[fox-9]: no family has this model"),
        ("providers/groq.toml", 'id = "grok"', "the file must be named grok.toml"),
        ("providers/groq.toml", "id = ", "Invalid value (at end of document)"),
        ("providers/acme.toml", 'id = "acme"', "Object missing required field `name`"),
        # The product's family comes after it by name; still the operator's file is the one to change.
        ("families/fox.toml", FOX.replace("fox-1", "gpt-4o"), "models[gpt-4o].owned_by: no provider 'acme'"),
        # The product's family of that name is read after it; still the operator's file is the one to change.
        ("families/a.toml", NAMED_TWICE, "models[fox-2]: `gpt-4o` already names gpt-4o"),
    ],
)
def test_a_problem_names_the_operators_file_and_key(own: Path, file: str, text: str, problem: str) -> None:
    (own / file).write_text(text)
    with pytest.raises(InvalidFiles) as caught:
        read_files(own=own)
    assert f"{own / file}: {problem}" in str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("openai.toml", "must be in the folder providers or families"),
        ("providers/openai.tml", "not a data file; their names end in .toml"),
        ("provider/openai.toml", "not a folder of the catalog; the folders are providers and families"),
    ],
)
def test_a_file_that_would_not_be_read_is_a_problem(own: Path, name: str, problem: str) -> None:
    (own / name).parent.mkdir(exist_ok=True)
    (own / name).write_text("")
    with pytest.raises(InvalidFiles) as caught:
        read_files(own=own)
    place = own / name if "folder of" not in problem else (own / name).parent
    assert str(caught.value) == f"{place}: {problem}"


def test_a_mounted_config_map_is_read_through_its_links(own: Path) -> None:
    """Kubernetes mounts a folder of a version, and links to it; volumes and repositories have files of their own."""
    (own / "..2026_11_28").mkdir()
    (own / "providers").rename(own / "..2026_11_28/providers")
    (own / "..data").symlink_to("..2026_11_28")
    (own / "providers").symlink_to("..data/providers")
    (own / "providers/groq.toml").write_text(CHEAPER)
    (own / "lost+found").mkdir()
    (own / "README.md").write_text("Prices of our contract.")
    (own / ".git").mkdir()
    assert groq(own, "gpt-oss-20b").prices["input"] == Decimal("0.05")


def test_a_folder_that_is_not_there_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(InvalidFiles) as caught:
        read_files(own=tmp_path / "away")
    assert str(caught.value) == f"{tmp_path / 'away'}: not a folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_a_problem(own: Path) -> None:
    (own / "providers/groq.toml").write_text(CHEAPER)
    (own / "providers/groq.toml").chmod(0)
    with pytest.raises(InvalidFiles) as caught:
        read_files(own=own)
    assert str(caught.value) == f"{own}/providers/groq.toml: Permission denied"


@pytest.mark.django_db
def test_a_load_reads_the_folder_and_withdraws_what_left_it(loaded: None, own: Path, settings: Any) -> None:
    settings.CATALOG_DIR = own
    assert find_differences() == []
    (own / "providers/acme.toml").write_text(ACME)
    (own / "families/fox.toml").write_text(FOX)
    (own / "providers/groq.toml").write_text(CHEAPER)
    [cheaper, *added] = sorted(find_differences(), reverse=True)
    assert added == ["+ provider acme", "+ model fox-1", "+ mapping acme/fox-1"]
    assert cheaper.startswith('~ mapping groq/gpt-oss-20b: prices {"input": "0.075", ')
    assert not Provider.objects.filter(id="acme").exists()
    done = load()
    assert (done.added, done.changed, done.withdrawn) == (3, 1, 0)
    row = ModelProvider.objects.get(provider_id="groq", model_id="gpt-oss-20b")
    assert (row.prices["input"], row.prices["cached_input"]) == ("0.05", "0.0375")
    change = PriceChange.objects.filter(provider="groq", model="gpt-oss-20b").latest("created_at")
    assert (change.old["input"], change.new["input"], change.author) == ("0.075", "0.05", "load_catalog")
    (own / "providers/acme.toml").unlink()
    (own / "families/fox.toml").unlink()
    done = load(today=date(2026, 11, 28))
    assert (done.added, done.changed, done.withdrawn) == (0, 0, 3)
    assert ModelProvider.objects.get(provider_id="acme").deactivated_at == date(2026, 11, 28)


@pytest.mark.django_db
def test_a_bad_file_changes_nothing_and_the_command_names_it(loaded: None, own: Path, settings: Any) -> None:
    settings.CATALOG_DIR = own
    (own / "providers/acme.toml").write_text(ACME.replace("0.15", "-0.15"))
    (own / "families/fox.toml").write_text(FOX)
    with pytest.raises(CommandError) as caught:
        call_command("load_catalog")
    assert str(caught.value) == (
        f"{own}/providers/acme.toml: models[fox-1]: `input` must be between 0 and 10000 USD; it is -0.15"
    )
    assert not Model.objects.filter(id="fox-1").exists()


@pytest.mark.django_db
def test_an_operator_sees_the_changes_and_then_reloads(
    loaded: None, own: Path, settings: Any, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    settings.CATALOG_DIR = own
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    path = reverse("admin:catalog_provider_reload_files")
    assert client.get(path).context["form"].lines[1:] == ["The tables say what the files say."]
    (own / "providers/groq.toml").write_text(CHEAPER)
    form = client.get(path).context["form"]
    [head, line] = form.lines
    assert str(own) in head
    assert line.startswith("~ mapping groq/gpt-oss-20b: prices")
    answers = {"once": form["once"].value(), "seen": form["seen"].value()}
    # Another file comes between the page and the click: it is shown first.
    (own / "providers/acme.toml").write_text(ACME)
    (own / "families/fox.toml").write_text(FOX)
    form = client.post(path, answers).context["form"]
    assert form.non_field_errors() == [
        "The data files have changed. Check the changes above, then confirm again.",
    ]
    assert len(form.lines) == 5
    assert not Provider.objects.filter(id="acme").exists()
    assert client.post(path, {"once": form["once"].value(), "seen": form["seen"].value()}).status_code == 302
    change = PriceChange.objects.filter(provider="groq", model="gpt-oss-20b").latest("created_at")
    assert (change.new["input"], change.author) == ("0.05", "op@example.com")
    assert Provider.objects.get(id="acme").file_owned


@pytest.mark.django_db
def test_invalid_files_are_shown_and_cannot_be_loaded(loaded: None, own: Path, settings: Any) -> None:
    settings.CATALOG_DIR = own
    (own / "providers/groq.toml").write_text("[models]")
    form = ReloadQuestion({"once": "0" * 32})
    assert form.lines[1:] == [
        "The files are not valid, so nothing can be loaded:",
        f"{own}/providers/groq.toml: each model must be a table under [[models]]",
    ]
    assert form.errors == {"__all__": ["The data files are not valid; correct them first."]}
