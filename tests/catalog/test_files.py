"""Valid contents of data files, and that every problem names its file and key."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from apps.catalog.files import FOLDER, InvalidFiles, Mapping, ModelEntry, ProviderFile, read_files
from apps.kernel.prices import PriceCard, PriceTier, ServiceTier
from gateway_project.configuration.data_directory import PROJECT
from tests.catalog import stated
from tests.catalog.conftest import edit

_READ = read_files()
_PROVIDERS = {file.id: file for file in _READ.providers}
_MODELS = {entry.id: entry for family in _READ.families for entry in family.models}


def mapping(provider: str, model: str) -> Mapping:
    """Return the files' entry for a model at a provider."""
    return next(entry for entry in _PROVIDERS[provider].models if entry.id == model)


def test_nothing_is_missing() -> None:
    read = {name: [entry.id for entry in file.models] for name, file in _PROVIDERS.items()}
    assert {name: set(models) for name, models in read.items()} == stated.MAPPINGS
    assert sum(map(len, read.values())) == stated.MAPPING_COUNT
    assert {name: set(entry.aliases) for name, entry in _MODELS.items()} == stated.ALIASES


def test_every_model_is_served_by_somebody() -> None:
    assert stated.served_models() == set(_MODELS)
    assert {"sandbox"} == stated.DEVELOPMENT_ONLY


def test_every_file_is_read_and_serves_something() -> None:
    """Every file is read, every provider serves something, and every model has a provider."""
    assert set(_PROVIDERS) == {path.stem for path in (FOLDER / "providers").glob("*.toml")}
    assert {family.family for family in _READ.families} == {path.stem for path in (FOLDER / "families").glob("*.toml")}
    assert all(file.models for file in _READ.providers)
    assert {entry.id for file in _READ.providers for entry in file.models} == set(_MODELS)


def test_the_files_of_the_guide_are_valid(tmp_path: Path) -> None:
    guide = (PROJECT / "docs" / "adding-a-provider.md").read_text()
    for folder, name, text in zip(
        ("providers", "families"), ("acme", "fox"), re.findall(r"```toml\n(.*?)```", guide, re.DOTALL), strict=True
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.toml").write_text(text)
    read = read_files(tmp_path)
    [provider], [family] = read.providers, read.families
    assert (provider.id, [entry.id for entry in provider.models]) == ("acme", ["fox-1"])
    assert (family.family, [entry.id for entry in family.models]) == ("fox", ["fox-1"])


def test_an_alias_leads_to_one_model_and_is_no_models_id() -> None:
    aliases = [alias for entry in _MODELS.values() for alias in entry.aliases]
    assert len(set(aliases)) == len(aliases) > 0
    assert not set(aliases) & set(_MODELS)


def test_a_model_says_who_made_it_and_what_it_is() -> None:
    entry = _MODELS["claude-opus-4-5"]
    assert entry == ModelEntry(
        id="claude-opus-4-5",
        name="Claude Opus 4.5",
        owned_by="anthropic",
        aliases=["claude-opus-4-5-20251101"],
        released=date(2025, 11, 24),
        knowledge="2025-03-31",
        open_weights=False,
        context_length=200_000,
        max_output=64_000,
        input_modalities=["text", "image", "pdf"],
        output_modalities=["text"],
    )


def test_a_mapping_says_prices_to_the_last_digit() -> None:
    assert mapping("novita", "gemma-3-27b-it").card.input == Decimal("0.119")
    assert mapping("openai", "gpt-5.4").card == PriceCard(
        input=Decimal("2.5"),
        output=Decimal(15),
        cached_input=Decimal("0.25"),
        tiers=(
            PriceTier(
                above_input_tokens=272_000, input=Decimal(5), output=Decimal("22.5"), cached_input=Decimal("0.5")
            ),
        ),
        service_tiers={
            "flex": ServiceTier(
                input=Decimal("1.25"),
                output=Decimal("7.5"),
                cached_input=Decimal("0.13"),
                tiers=(
                    PriceTier(
                        above_input_tokens=272_000,
                        input=Decimal("2.5"),
                        output=Decimal("11.25"),
                        cached_input=Decimal("0.25"),
                    ),
                ),
            ),
            "priority": ServiceTier(input=Decimal(5), output=Decimal(30), cached_input=Decimal("0.5")),
        },
        # The provider's, for all of its models that call tools.
        tools={"code_interpreter": Decimal("0.03"), "file_search": Decimal("0.0025")},
    )
    assert mapping("bfl", "flux-pro-1.1").card == PriceCard(image=Decimal("0.04"))


def test_a_mapping_says_what_the_provider_can_do_and_calls_it() -> None:
    groq = mapping("groq", "gpt-oss-20b")
    assert groq.own_names == ["openai/gpt-oss-20b"]
    assert (groq.context, groq.max_output) == (131_072, 65_536)
    assert groq.reasoning_efforts == ["low", "medium", "high"]
    assert set(groq.features) == {
        *("tools", "parallel_tools", "tool_choice", "reasoning", "structured_outputs"),
        *("json_output", "prompt_cache"),
    }
    assert mapping("vertex", "gpt-oss-20b").deactivated == date(2026, 10, 21)
    assert mapping("openai", "o1-pro").dialect == "responses"
    assert mapping("openai", "gpt-5.4").temperature is False


def test_a_host_promises_no_longer_answer_than_the_maker_that_alone_has_the_model() -> None:
    assert [mapping(host, "gemini-2.5-pro").max_output for host in ("google", "deepinfra")] == [65_536, 65_536]
    # Lists of prices repeat the context where they know no limit of answers.
    assert [
        (file.id, one.id, one.max_output)
        for file in _PROVIDERS.values()
        for one in file.models
        if (model := _MODELS[one.id]).owned_by in {"alibaba", "anthropic", "google", "meta", "sakana", "stepfun"}
        and not model.open_weights
        and model.max_output
        and one.max_output
        and one.max_output > model.max_output
        and one.max_output == one.context
    ] == []


def test_the_sandbox_does_not_leave_development() -> None:
    sandbox: ProviderFile = _PROVIDERS["sandbox"]
    assert sandbox.base_url == "http://127.0.0.1:8001/v1"
    assert sandbox.facts.development_only is True
    assert mapping("sandbox", "free").card.free
    assert mapping("sandbox", "priced-request").card.request == Decimal("0.001")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name = "Groq"', "", "Object missing required field `name`"),
        ('website = "', 'colour = "', "Object contains unknown field `colour`"),
        ('dialect = "openai"', 'dialect = "open-ai"', "Invalid enum value 'open-ai' - at `$.dialect`"),
        ('auth = "bearer"', 'auth = "Bearer"', "Invalid enum value 'Bearer' - at `$.auth`"),
        ('id = "groq"', 'id = "grok"', "the file must be named grok.toml"),
        ("[facts]", "[facts", "Expected ']' at the end of a table declaration (at line 13, column 7)"),
        ("reasoning_field =", "reasoning =", "Object contains unknown field `reasoning` - at `$.facts`"),
        # A fact of another dialect, one that a model's entry states itself, and an image dialect that does not exist.
        ("[facts]", "[facts]\nbetas = []", "Object contains unknown field `betas` - at `$.facts`"),
        ("[facts]", "[facts]\ntemperature = false", "Object contains unknown field `temperature` - at `$.facts`"),
        ("[facts]", '[facts]\ncount_dialect = "x"', "Invalid enum value 'x' - at `$.facts.count_dialect`"),
        ("[facts]", '[facts]\nimages = { dialect = "x" }', "Invalid enum value 'x' - at `$.facts.images.dialect`"),
        (
            "[facts]",
            '[facts]\nimages = { dialect = "openai", most = 11 }',
            "Expected `int` <= 10 - at `$.facts.images.most`",
        ),
    ],
)
def test_a_problem_names_its_file_and_key(folder: Path, old: str, new: str, problem: str) -> None:
    edit(folder / "providers/groq.toml", old, new)
    with pytest.raises(InvalidFiles) as caught:
        read_files(folder)
    assert str(caught.value) == f"providers/groq.toml: {problem}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"openai/gpt-oss-20b"', '"openai/gpt-oss-120b"', "`openai/gpt-oss-120b` already names gpt-oss-120b"),
        ('"openai/gpt-oss-20b"', '"gpt-4o"', "`gpt-4o` already names gpt-4o"),
        ('id = "gpt-oss-20b"', 'id = "gpt-oss-20b"\ncolour = "red"', "Object contains unknown field `colour`"),
        ("input = 0.075", "inptu = 0.075", "unknown price `inptu`"),
        ("input = 0.075", "input = -0.075", "`input` must be between 0 and 10000 USD; it is -0.075"),
        ("input = 0.075", "input = 75000", "`input` must be between 0 and 10000 USD; it is 75000"),
        ("input = 0.075", "input = nan", "`input` must be between 0 and 10000 USD; it is NaN"),
        ("input = 0.075", "input = 7.5e-8", "`input` has more than 6 digits after the point: 7.5E-8"),
        ("input = 0.075", 'input = "cheap"', "Invalid decimal string - at `$.input`"),
        ("web_search = 0.005 }", "web_search = 101 }", "`web_search` must be between 0 and 100"),
        ("flex = {} }", "flex = { inptu = 1 } }", "unknown price `inptu`"),
        ("flex = {} }", "flex = { web_search = 1 } }", "unknown price `web_search`"),
        ("flex = {} }", "flex = {} }\nregions = { us = 11 }", "`regions.us` must be between 0 and 10"),
        ("flex = {} }", "flex = {} }\ntools = { file_search = -1 }", "`tools.file_search` must be between 0 and 100"),
        ("flex = {} }", 'flex = {} }\nservice_tier = "flex"', "Object contains unknown field `service_tier`"),
        ("context = 131072", "context = 0", "Expected `int` >= 1 - at `$.context`"),
        ("context = 131072", "context = 131072\ntiers = [{ above_input_tokens = 1, x = 1 }]", "unknown price `x`"),
        ('"tools", "par', '"tolls", "par', "Invalid enum value 'tolls' - at `$.features[0]`"),
        (
            "reasoning_efforts",
            'stability = "solid"\nreasoning_efforts',
            "Invalid enum value 'solid' - at `$.stability`",
        ),
        (
            "reasoning_efforts",
            'deprecated = "soon"\nreasoning_efforts',
            "Invalid RFC3339 encoded date - at `$.deprecated`",
        ),
    ],
)
def test_a_problem_of_a_model_names_the_model(folder: Path, old: str, new: str, problem: str) -> None:
    path = folder / "providers/groq.toml"
    head, start, models = path.read_text().partition('[[models]]\nid = "gpt-oss-20b"')
    assert old in start + models
    path.write_text(head + (start + models).replace(old, new, 1))
    with pytest.raises(InvalidFiles) as caught:
        read_files(folder)
    assert str(caught.value).startswith(f"providers/groq.toml: models[gpt-oss-20b]: {problem}")


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "providers/groq",
            'id = "gpt-oss-20b"',
            'id = "gpt-oss-120b"',
            "[gpt-oss-120b]: the file has this model twice",
        ),
        ("providers/groq", 'id = "gpt-oss-20b"', 'id = "gpt-oss-21b"', "[gpt-oss-21b]: no family has this model"),
        ("families/o-pro", 'id = "o1-pro"', 'id = "o3-pro"', "[o3-pro]: the file has this model twice"),
        ("families/o-pro", '"o1-pro-2025-03-19"', '"o3-pro"', "[o3-pro]: `o3-pro` already names o1-pro"),
        ("families/o-pro", '"o1-pro-2025-03-19"', '"gpt-4o"', "[o1-pro]: `gpt-4o` already names gpt-4o"),
        ("families/o-pro", '"o1-pro-2025-03-19"', '"o1-pro"', "[o1-pro]: `o1-pro` already names o1-pro"),
        ("families/o-pro", 'owned_by = "openai"', 'owned_by = "opena"', "[o1-pro].owned_by: no provider 'opena'"),
        (
            "families/o-pro",
            'name = "o1-pro"',
            'name = "o1-pro"\nmode = "x"',
            "[o1-pro]: Invalid enum value 'x' - at `$.mode`",
        ),
    ],
)
def test_models_and_names_fit_together(folder: Path, file: str, old: str, new: str, problem: str) -> None:
    edit(folder / f"{file}.toml", old, new)
    with pytest.raises(InvalidFiles) as caught:
        read_files(folder)
    assert f"{file}.toml: models{problem}" in str(caught.value).splitlines()


def test_all_problems_are_told_at_once(folder: Path) -> None:
    edit(folder / "providers/groq.toml", "input = 0.15", "input = -1")
    edit(folder / "providers/xai.toml", 'auth = "bearer"', 'auth = "none"')
    with pytest.raises(InvalidFiles) as caught:
        read_files(folder)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "providers/groq.toml",
        "providers/xai.toml",
    ]
