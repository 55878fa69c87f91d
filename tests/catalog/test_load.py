"""Files to rows: idempotent, and what operators did stays done."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from pytest_django import DjangoCaptureOnCommitCallbacks

from apps.catalog.files import InvalidFiles
from apps.catalog.load import Loaded, load
from apps.catalog.models import Model, ModelProvider, Provider
from apps.kernel.valkey import generation
from tests.catalog import stated
from tests.catalog.conftest import edit

pytestmark = pytest.mark.django_db

ALL = Loaded(stated.PROVIDER_COUNT, stated.MODEL_COUNT, stated.MAPPING_COUNT)
ROWS = ALL.providers + ALL.models + ALL.mappings
TODAY = date(2026, 11, 21)


def mapping(provider: str, model: str) -> ModelProvider:
    """The row of a model at a provider."""
    row: ModelProvider = ModelProvider.objects.get(provider_id=provider, model_id=model)
    return row


def without(folder: Path, file: str, model: str) -> None:
    """Take a model's entry out of a file."""
    path = folder / file
    head, *entries = path.read_text().split("[[models]]\n")
    kept = [entry for entry in entries if not entry.startswith(f'id = "{model}"\n')]
    assert len(kept) == len(entries) - 1
    path.write_text("[[models]]\n".join([head, *kept]))


def test_a_first_load_adds_everything_and_a_second_nothing(empty: None) -> None:
    assert load() == replace(ALL, added=ROWS)
    before = list(ModelProvider.objects.order_by("pk").values())
    assert load() == ALL
    assert list(ModelProvider.objects.order_by("pk").values()) == before


def test_rows_say_what_the_files_say(loaded: None) -> None:
    groq = Provider.objects.get(id="groq")
    assert (groq.name, groq.dialect, groq.auth) == ("Groq", "openai", "bearer")
    assert (groq.base_url, groq.api_key_env) == ("https://api.groq.com/openai/v1", "GROQ_API_KEY")
    assert groq.facts == {
        "max_tokens_field": "max_completion_tokens",
        "reasoning_field": "reasoning",
        "message_names": False,
        "unsupported": ["logit_bias", "logprobs", "top_logprobs"],
    }
    opus = Model.objects.get(id="claude-opus-4-5")
    assert (opus.family, opus.owned_by, opus.mode) == ("claude-opus", "anthropic", "chat")
    assert opus.released_on == date(2025, 11, 24)
    assert opus.facts == {"tokenizer": "Claude", "knowledge": "2025-03-31", "open_weights": False}
    row = mapping("anthropic", "claude-opus-4-5")
    assert row.prices == {
        "input": "5",
        "output": "25",
        "cached_input": "0.5",
        "cache_write": "6.25",
        "cache_write_1h": "10",
        "web_search": "0.01",
        "tools": {"web_fetch": "0", "code_execution": "0.004166666667"},
    }
    assert row.facts == {
        "aliases": ["claude-opus-4-5-20251101"],
        "reasoning_efforts": ["low", "medium", "high"],
        "reasoning_budget": {"min": 1024},
    }
    assert (row.streaming, row.cancellation, row.tools, row.web_search) == (True, True, True, True)
    embedding = mapping("openai", "text-embedding-3-small")
    assert (embedding.streaming, embedding.cancellation, embedding.tools) == (False, False, False)
    assert (embedding.facts["dimensions"], embedding.facts["embeddings"]["most"]) == (1536, 2048)
    assert mapping("vertex", "claude-opus-4-5").deactivated_at == date(2026, 11, 24)
    assert mapping("openai", "gpt-5.4").prices["tiers"] == [
        {"above_input_tokens": 272000, "input": "5", "output": "22.5", "cached_input": "0.5"}
    ]


def test_what_operators_changed_is_kept_and_facts_are_rewritten(loaded: None) -> None:
    Provider.objects.filter(id="groq").update(active=False, priority=Decimal("0.8"), name="Grok")
    Model.objects.filter(id="gpt-4o").update(active=False, name="My GPT")
    row = mapping("openai", "gpt-4o")
    row.active, row.priority, row.price_overrides, row.prices = False, Decimal("0.25"), {"input": "1.5"}, {}
    row.save()
    assert load() == replace(ALL, changed=3)
    groq = Provider.objects.get(id="groq")
    assert (groq.active, groq.priority, groq.name) == (False, Decimal("0.800"), "Groq")
    model = Model.objects.get(id="gpt-4o")
    assert (model.active, model.name) == (False, "GPT-4o (2024-11-20)")
    row = mapping("openai", "gpt-4o")
    assert (row.active, row.priority, row.price_overrides) == (False, Decimal("0.250"), {"input": "1.5"})
    assert row.prices == {
        "input": "2.5",
        "output": "10",
        "cached_input": "1.25",
        "service_tiers": {"priority": {"input": "4.25", "output": "17", "cached_input": "2.125"}},
        "tools": {"code_interpreter": "0.03", "file_search": "0.0025"},
    }


def test_rows_that_operators_made_are_left_alone(loaded: None) -> None:
    own = Provider.objects.create(id="acme", name="Acme", dialect="openai", auth="bearer", base_url="https://acme.test")
    model = Model.objects.create(id="acme-1", name="Acme 1", family="acme", mode="chat")
    ModelProvider.objects.create(provider=own, model=model, model_name="one", prices={"input": "0.1"})
    before = [list(table.objects.filter(file_owned=False).values()) for table in (Provider, Model, ModelProvider)]
    assert [len(rows) for rows in before] == [1, 1, 1]
    assert load() == ALL
    assert [
        list(table.objects.filter(file_owned=False).values()) for table in (Provider, Model, ModelProvider)
    ] == before


def test_a_row_that_an_operator_deleted_comes_back(loaded: None) -> None:
    mapping("groq", "gpt-oss-20b").delete()
    assert load() == replace(ALL, added=1)


def test_a_mapping_whose_entry_vanished_is_deactivated_and_revived_by_its_return(loaded: None, folder: Path) -> None:
    without(folder, "providers/groq.toml", "gpt-oss-20b")
    assert load(folder, TODAY) == replace(ALL, mappings=ALL.mappings - 1, withdrawn=1)
    row = mapping("groq", "gpt-oss-20b")
    assert (row.deactivated_at, row.file_owned, row.active) == (TODAY, False, True)
    assert load(folder, date(2026, 12, 24)) == replace(ALL, mappings=ALL.mappings - 1)
    assert mapping("groq", "gpt-oss-20b").deactivated_at == TODAY
    assert load() == replace(ALL, changed=1)
    row = mapping("groq", "gpt-oss-20b")
    assert (row.deactivated_at, row.file_owned) == (None, True)


def test_a_model_that_vanished_keeps_its_row_and_the_mappings_that_operators_made(loaded: None, folder: Path) -> None:
    ModelProvider.objects.create(provider_id="groq", model_id="o1-pro", model_name="o1-pro")
    without(folder, "families/o-pro.toml", "o1-pro")
    without(folder, "providers/openai.toml", "o1-pro")
    without(folder, "providers/openrouter.toml", "o1-pro")
    assert load(folder, TODAY) == replace(ALL, models=ALL.models - 1, mappings=ALL.mappings - 2, withdrawn=3)
    assert Model.objects.get(id="o1-pro").file_owned is False
    assert mapping("openrouter", "o1-pro").deactivated_at == TODAY
    assert mapping("groq", "o1-pro").deactivated_at is None


def test_a_bad_file_changes_nothing(loaded: None, folder: Path) -> None:
    before = list(ModelProvider.objects.order_by("pk").values())
    edit(folder / "providers/xai.toml", "input = ", "input = 9")
    edit(folder / "providers/groq.toml", "input = 0.15", "input = -1")
    with pytest.raises(InvalidFiles):
        load(folder)
    assert list(ModelProvider.objects.order_by("pk").values()) == before


def test_only_a_load_that_changes_something_makes_copies_stale(
    empty: None, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    word = generation.read_generation_token(generation.CATALOG)
    with django_capture_on_commit_callbacks(execute=True):
        load()
    loaded = generation.read_generation_token(generation.CATALOG)
    assert loaded != word
    with django_capture_on_commit_callbacks(execute=True):
        load()
    assert generation.read_generation_token(generation.CATALOG) == loaded


def test_the_command_says_in_one_line_what_it_did(empty: None, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("load_catalog")
    call_command("load_catalog")
    files = f"catalog: {ALL.providers} providers, {ALL.models} models, {ALL.mappings} mappings"
    assert capsys.readouterr().out.splitlines() == [
        f"{files}; {ROWS} added, 0 changed, 0 withdrawn",
        f"{files}; 0 added, 0 changed, 0 withdrawn",
    ]


@pytest.mark.parametrize(
    "prices", [{"input": "-1"}, {"inptu": "1"}, {"input": "20000"}, {"input": "x"}, ["input"], 5, {"tiers": 5}]
)
def test_operators_cannot_enter_prices_that_cannot_be_meant(loaded: None, prices: object) -> None:
    row = mapping("openai", "gpt-4o")
    row.price_overrides = prices
    with pytest.raises(ValidationError) as caught:
        row.full_clean()
    assert list(caught.value.message_dict) == ["price_overrides"]


def test_operators_can_enter_prices_that_can(loaded: None) -> None:
    row = mapping("openai", "gpt-4o")
    row.price_overrides = {"input": 0.15, "output": "0.6", "cached_input": None}
    row.full_clean()
