"""Editions: names of a model at a provider with a price of their own, from the file to what a name means."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from django.test import Client

from apps.catalog import catalog_cache
from apps.catalog.catalog_cache import read_catalog
from apps.catalog.client_listings import build_model_info
from apps.catalog.files import InvalidFiles, read_files
from apps.catalog.load import load
from apps.catalog.model_listing import build_entry
from apps.catalog.models import ModelProvider, PriceChange
from apps.catalog.offers import Catalog, Offer, resolve
from apps.catalog.price_cards import Edition, read_card
from apps.catalog.price_history import steps_of
from apps.kernel.errors import Gone, InvalidRequest
from apps.kernel.prices import PriceCard
from apps.kernel.valkey import generation
from tests.catalog.conftest import edit
from tests.catalog.small import catalog, model, offer

TODAY = date(2026, 11, 28)
USUAL = read_card(
    {
        "input": "2",
        "output": "10",
        "cached_input": "0.2",
        "web_search": "0.01",
        "tiers": [{"above_input_tokens": 1000, "input": "4", "output": "15"}],
        "service_tiers": {"flex": {"input": "1", "output": "5"}},
        "tools": {"file_search": "0.0025"},
    }
)


def dear(at: str, name: str, *others: str) -> Offer:
    """An edition for ten times the usual price."""
    card = PriceCard(input=Decimal(10), output=Decimal(20))
    return offer(at, "fox-1", model_name=name, prices=card, facts={"aliases": others}, is_edition=True)


SMALL = catalog(
    model(
        "fox-1",
        offer("acme", "fox-1", editions=(dear("acme", "fox-1-0513"),)),
        offer("bolt", "fox-1", editions=(dear("bolt", "eu.fox-1", "us.fox-1"),)),
        aliases=("fox-1-0513",),
    ),
    model("hen-1", offer("acme", "hen-1", editions=(offer("acme", "hen-1", model_name="hen-0", active=False),))),
)


def offer_at(read: Catalog, provider: str, model_id: str) -> Offer:
    """Return a provider's offer of a model."""
    return next(one for one in read.models[model_id].offers if one.provider.id == provider)


def test_a_factor_multiplies_all_prices_of_tokens_and_no_others() -> None:
    assert Edition(names=["eu.x"], factor=Decimal("1.1")).card(USUAL) == read_card(
        {
            "input": "2.2",
            "output": "11",
            "cached_input": "0.22",
            "web_search": "0.01",
            "tiers": [{"above_input_tokens": 1000, "input": "4.4", "output": "16.5"}],
            "service_tiers": {"flex": {"input": "1.1", "output": "5.5"}},
            "tools": {"file_search": "0.0025"},
        }
    )


def test_stated_prices_leave_nothing_of_the_usual_ones_but_tools() -> None:
    dated = Edition(names=["x-0513"], prices={"input": "5", "output": "15"})
    assert dated.card(USUAL) == read_card({"input": "5", "output": "15", "tools": {"file_search": "0.0025"}})


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ("{ names = [], factor = 1.1 }", "Expected `array` of length >= 1 - at `$.editions[0].names`"),
        ('{ names = ["x"] }', "edition x: state either `factor` or `prices` - at `$.editions[0]`"),
        (
            '{ names = ["x"], factor = 1.1, prices = { input = 1 } }',
            "edition x: state either `factor` or `prices` - at `$.editions[0]`",
        ),
        ('{ names = ["x"], factor = 20 }', "edition x: `factor` must be between 0.1 and 10 - at `$.editions[0]`"),
        ('{ names = ["x"], prices = { inptu = 1 } }', "unknown price `inptu`"),
        ('{ names = ["x"], factor = 1.00001 }', "`cached_input` has more than 6 digits after the point: 1.2500125"),
        ('{ names = ["x"], factor = 1.1, until = 2027-01-01 }', "Object contains unknown field `until`"),
        ('{ names = ["gpt-4o-2024-08-06"], factor = 1.1 }', "`gpt-4o-2024-08-06` is stated twice"),
        ('{ names = ["gpt-5.6-sol"], factor = 1.1 }', "`gpt-5.6-sol` already names gpt-5.6-sol"),
    ],
)
def test_an_edition_that_cannot_be_meant_is_refused(folder: Path, stated: str, problem: str) -> None:
    path = folder / "providers" / "openai.toml"
    start = path.read_text().index('    { names = ["gpt-4o-2024-05-13"]')
    line = path.read_text()[start:].partition("\n")[0]
    edit(path, line, f"    {stated},")
    with pytest.raises(InvalidFiles) as caught:
        read_files(folder)
    assert f"providers/openai.toml: models[gpt-4o]: {problem}" in str(caught.value)


@pytest.mark.django_db
def test_an_edition_is_an_offer_with_its_own_price_limits_and_dates(loaded: None) -> None:
    usual = offer_at(read_catalog("word"), "openai", "gpt-4o")
    [dated] = usual.editions
    assert (usual.model_name, usual.prices.input, usual.prices.cached_input, usual.max_output) == (
        "gpt-4o",
        Decimal("2.5"),
        Decimal("1.25"),
        16384,
    )
    assert (dated.own_names, dated.max_output, dated.context_length) == (("gpt-4o-2024-05-13",), 4096, 128000)
    assert dated.prices == read_card(
        {
            "input": "5",
            "output": "15",
            "service_tiers": {"priority": {"input": "8.75", "output": "26.25"}},
            "tools": {name: str(price) for name, price in usual.prices.tools.items()},
        }
    )
    assert (dated.model_id, dated.active, dated.tools) == ("gpt-4o", True, True)
    assert (dated.is_live(date(2026, 10, 22)), dated.is_live(date(2026, 10, 23))) == (True, False)
    assert usual.is_live(date(2026, 10, 23))
    assert "editions" not in usual.facts


@pytest.mark.django_db
def test_an_operators_prices_hold_for_a_factor_and_not_for_stated_ones(loaded: None) -> None:
    ModelProvider.objects.filter(model_id="claude-opus-4-8", provider_id="bedrock").update(
        price_overrides={"input": "4"}
    )
    ModelProvider.objects.filter(model_id="gpt-4o", provider_id="azure").update(price_overrides={"input": "2"})
    read = read_catalog("word")
    opus = offer_at(read, "bedrock", "claude-opus-4-8")
    prices = {name: one.prices.input for one in (opus, *opus.editions) for name in one.own_names}
    assert prices["global.anthropic.claude-opus-4-8"] == Decimal(4)
    assert prices["eu.anthropic.claude-opus-4-8"] == Decimal("4.4")
    assert prices["us-gov.anthropic.claude-opus-4-8"] == Decimal("4.8")
    gpt = offer_at(read, "azure", "gpt-4o")
    assert [one.prices.input for one in (gpt, *gpt.editions)] == [Decimal(2), Decimal(5)]


@pytest.mark.django_db
def test_a_mapping_with_an_edition_that_cannot_be_read_is_not_served(loaded: None) -> None:
    row = ModelProvider.objects.get(model_id="gpt-4o", provider_id="azure")
    row.facts["editions"][0]["prices"] = {"input": "free"}
    row.save()
    assert "azure" not in {one.provider.id for one in read_catalog("word").models["gpt-4o"].offers}


@pytest.mark.django_db
def test_a_change_of_an_editions_price_goes_into_the_history(loaded: None, folder: Path) -> None:
    edit(
        folder / "providers" / "azure.toml",
        "prices = { input = 5, output = 15 }",
        "prices = { input = 6, output = 15 }",
    )
    known = set(PriceChange.objects.values_list("pk", flat=True))
    load(folder)
    [change] = PriceChange.objects.exclude(pk__in=known)
    assert (change.provider, change.model) == ("azure", "gpt-4o")
    [step] = steps_of(change)
    assert step == ("Input (gpt-4o-2024-05-13)", "5", "6")


def test_who_names_an_edition_gets_it_and_who_names_the_model_does_not() -> None:
    def meant(name: str) -> list[tuple[str, str, Decimal | None]]:
        resolved = resolve(SMALL, name, TODAY)
        return [(one.provider.id, one.name_for(resolved.name), one.prices.input) for one in resolved.offers]

    usual = [("acme", "fox-1", Decimal(1)), ("bolt", "fox-1", Decimal(1))]
    assert meant("fox-1") == meant("acme/fox-1") == usual
    # Without a provider: none that would answer with another edition.
    assert meant("fox-1-0513") == [("acme", "fox-1-0513", Decimal(10))]
    # With one: the others are there to fall back to, as for any name.
    assert meant("acme/fox-1-0513") == [("acme", "fox-1-0513", Decimal(10)), usual[1]]
    assert meant("bolt/us.fox-1") == [usual[0], ("bolt", "us.fox-1", Decimal(10))]
    with pytest.raises(InvalidRequest, match=r"ask for that, or for `bolt/eu\.fox-1`"):
        resolve(SMALL, "eu.fox-1", TODAY)
    with pytest.raises(Gone, match=r"^hen-0 is no longer served by any provider$"):
        resolve(SMALL, "acme/hen-0", TODAY)


def test_a_pass_over_a_model_is_paid_as_the_edition_that_is_named() -> None:
    found = [SMALL.find_offer("bolt", name) for name in ("fox-1", "us.fox-1", "eu.fox-1")]
    assert [one.prices.input for one in found if one] == [Decimal(1), Decimal(10), Decimal(10)]


def test_a_listing_has_editions_within_their_provider_and_by_name() -> None:
    fox = SMALL.models["fox-1"]
    entry = build_entry(fox, fox.offers)
    assert (entry["pricing"]["prompt"], [one["modelName"] for one in entry["providers"]]) == (
        "0.000001",
        ["fox-1", "fox-1"],
    )
    assert [one["editions"] for one in entry["providers"]] == [
        [
            {
                "modelNames": names,
                "pricing": {"prompt": "0.00001", "completion": "0.00002", "image": "0"},
                "deactivated_at": None,
            }
        ]
        for names in (("fox-1-0513",), ("eu.fox-1", "us.fox-1"))
    ]
    assert "editions" not in build_entry(SMALL.models["fox-1"], [offer("acme", "fox-1")])["providers"][0]
    whole = build_model_info(SMALL, TODAY)["data"]
    assert [one["model_info"]["id"] for one in whole] == ["acme/fox-1", "bolt/fox-1", "acme/hen-1"]
    [one] = build_model_info(SMALL, TODAY, only="bolt/us.fox-1")["data"]
    assert (one["model_name"], one["model_info"]["id"]) == ("fox-1", "bolt/us.fox-1")
    assert (one["litellm_params"], one["model_info"]["input_cost_per_token"]) == ({"model": "bolt/us.fox-1"}, 0.00001)


@pytest.mark.django_db
def test_an_edition_that_is_looked_up_shows_its_own_price(loaded: None, client: Client) -> None:
    row = ModelProvider.objects.get(model_id="gpt-4o", provider_id="azure")
    row.deactivated_at, row.facts["editions"][0]["deactivated"] = None, "2999-01-01"
    row.save()
    generation.bump(generation.CATALOG)
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))
    for name in ("azure/gpt-4o-2024-05-13", "gpt-4o-2024-05-13"):
        entry = client.get(f"/v1/models/{name}").json()
        assert (entry["id"], entry["pricing"]["prompt"], entry["pricing"]["completion"]) == (
            "gpt-4o",
            "0.000005",
            "0.000015",
        )
        assert [(one["providerId"], one["modelName"]) for one in entry["providers"]] == [("azure", "gpt-4o-2024-05-13")]
    assert client.get("/v1/models/azure/gpt-4o").json()["pricing"]["prompt"] == "0.0000025"
