"""The page of a model and the comparison: figures of providers, price history, own usage, and who sees which."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import Client

from apps.catalog import catalog_cache
from apps.catalog.models import PriceChange
from apps.catalog.price_history import find_model_changes
from apps.console import model_figures
from apps.console.model_cards import ModelCard, find_card
from apps.console.model_figures import own_usage, provider_figures, read_price_history
from apps.keys.models import ProviderKey
from apps.logs import performance, rollup
from apps.logs.entry import ProviderOutcome
from apps.logs.performance import WINDOWS, read_performance
from apps.logs.usage import ModelUsage
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words
from tests.support.shipped_catalog import stock

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _catalog() -> None:
    stock()


def see(path: str, query: str = "") -> Any:
    return Client(raise_request_exception=False).get(f"{path}?{query}", headers={"accept": "text/html"})


def outcome(provider: str, model: str = "gpt-5", **fields: Any) -> ProviderOutcome:
    usual = {"succeeded": True, "first_token": 400, "tokens": 100, "writing": 2000}
    return ProviderOutcome(model=model, provider=provider, **{**usual, **fields})


def card_of(model_id: str) -> ModelCard:
    card = find_card(model_id)
    assert card is not None
    return card


def change(provider: str, days: int, old: dict[str, str], new: dict[str, str]) -> PriceChange:
    return PriceChange(provider=provider, model="gpt-5", old=old, new=new, created_at=ago(days=days))


def test_a_model_shows_uptime_and_speed_by_provider_and_period() -> None:
    write(
        entry(outcomes=[outcome("azure", succeeded=False), outcome("openai")]),
        entry(outcomes=[outcome("openai")]),
        entry(outcomes=[outcome("openai", succeeded=False)]),
        entry(id=id_at(ago(days=3)), outcomes=[outcome("azure")]),
        # Whose offer has ended.
        entry(outcomes=[outcome("gone")]),
    )
    performance.fold()
    day = see("/models/gpt-5", "period=24h")
    assert [(one.provider, one.total.succeeded, one.total.failed) for one in day.context["figures"]] == [
        ("openai", 2, 1),
        ("azure", 0, 1),
    ]
    assert day.context["window"].name == "24h"
    said = words(day)
    for expected in ("66.7%", "0%", "24 hours", "395 ms", "427 ms", "49"):
        assert expected in said
    week = see("/models/gpt-5")
    assert [(one.provider, one.total.succeeded, one.total.failed) for one in week.context["figures"]] == [
        ("openai", 2, 1),
        ("azure", 1, 1),
    ]
    [openai, azure] = week.context["figures"]
    assert (len(openai.bars), openai.lowest, azure.lowest) == (28, "66.7%", "0%")
    assert {bar.style for bar in openai.bars} == {"no-calls", "down"}
    assert {bar.style for bar in azure.bars} == {"no-calls", "down", "up"}
    assert see("/models/gpt-5", "period=never").context["window"].name == "7d"
    assert "No calls in the last 7 days" in words(see("/models/claude-opus-4-5"))


def test_a_page_without_the_database_has_its_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(model_figures, "read_performance", fail)
    monkeypatch.setattr(model_figures, "find_model_changes", fail)
    answer = see("/models/gpt-5")
    assert answer.status_code == 200
    assert words(answer).count("not available at the moment") == 2
    compared = see("/models/compare", "model=gpt-5&model=echo")
    assert (compared.status_code, "not available at the moment" in words(compared)) == (200, True)


def test_prices_are_a_table_and_a_line_where_one_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    names = {"openai": "OpenAI", "azure": "Azure"}
    changes = [
        change("unknown", 40, {}, {"input": "1", "output": "7"}),
        change("azure", 50, {}, {"input": "1", "output": "5"}),
        change("openai", 100, {"input": "2", "output": "20"}, {"input": "2", "output": "10"}),
    ]
    monkeypatch.setattr(model_figures, "find_model_changes", lambda *_: changes)
    history = read_price_history("gpt-5", names, now)
    assert history is not None
    assert [(one["provider"], one["is_first"], [tuple(step) for step in one["steps"]]) for one in history.changes] == [
        ("Azure", True, [("Input", None, "1"), ("Output", None, "5")]),
        ("OpenAI", False, [("Output", "20", "10")]),
    ]
    assert history.label == "Output"
    # From 20 to 10 at the begin, of which 20 is the largest; 5 from the middle on.
    assert [(line.provider, line.points, line.lowest, line.highest) for line in history.lines] == [
        ("OpenAI", "0.0,4.0 0.0,4.0 0.0,62.0 600,62.0", 10, 20),
        ("Azure", "300.0,91.0 600,91.0", 5, 5),
    ]
    changes.clear()
    assert read_price_history("gpt-5", names, now) == model_figures.PriceHistory([], "", [], None)


def test_the_pages_price_history_is_the_catalogs() -> None:
    PriceChange.objects.create(
        provider="openai",
        model="gpt-5",
        old={"output": "10", "cache_write": "1", "web_search": "0.01", "input": "1.25"},
        new={"output": "12.5", "web_search": "0.014", "tiers": [{"above_input_tokens": 200_000, "input": "2.5"}]},
        author="op@example.com",
    )
    assert find_model_changes(["gpt-5"], ago(days=-1), 10) == []
    assert find_model_changes(["gpt-5"], ago(days=1), 1)[0].new["output"] == "12.5"
    said = words(see("/models/gpt-5"))
    for expected in (
        "Output: 10 → 12.5",
        "Cache write: 1 → no price",
        "Web search: 0.01 each → 0.014 each",
        "Input above 200,000 tokens: 2.5",
    ):
        assert expected in said
    assert "Output price in USD per million tokens since" in said
    german = Client(headers={"accept-language": "de"}).get("/models/gpt-5")
    assert "Websuche: 0.01 je Stück → 0.014 je Stück" in words(german)
    # The operator who changed a price is not public.
    assert "op@example.com" not in said


def test_a_members_page_has_the_organizations_own_usage(world: World) -> None:
    key = make_key(world.olivia, world.project).key
    theirs = make_key(world.sam, world.elsewhere_project).key
    usual = {"used_model": "gpt-5", "prompt_tokens": 1_000, "completion_tokens": 10, "cost": Decimal("0.5")}
    write(entry(key, **usual), entry(key, **usual, id=id_at(ago(days=2))))
    rollup.roll_up()
    write(
        entry(key, **{**usual, "cost": Decimal(0), "cached": True}),
        entry(key, **usual, has_error=True),
        entry(key, **{**usual, "used_model": "echo"}),
        entry(key, **usual, id=id_at(ago(days=40))),
        entry(theirs, **{**usual, "cost": Decimal(99)}),
    )
    answer = Visitor(world.dana).open(page(world.acme, "models/gpt-5"))
    usage = answer.context["usage"]
    assert (usage.requests, usage.errors, usage.cache_hits, usage.cost) == (4, 1, 1, Decimal("1.5"))
    assert (usage.input_tokens, usage.output_tokens) == (4_000, 40)
    # Two were paid and succeeded, for 1.5 with the failed one.
    assert usage.response_cache_savings == Decimal("0.75")
    assert sum(answer.context["usage_chart"]["series"][0]["values"]) == 1.5
    assert "Your usage in 30 days" in words(answer)
    assert "Your usage in" not in words(see("/models/gpt-5"))
    assert Visitor(world.sam).open(page(world.acme, "models/gpt-5")).status_code == 403
    assert Visitor(world.dana).open(page(world.acme, "models/nothing")).status_code == 404


def test_a_page_says_why_a_provider_cannot_be_called_and_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offer in card_of("gpt-5").offers:
        monkeypatch.delenv(offer.provider.api_key_env, raising=False)
    lacking = "The operator has no credential for it"
    hint, plan = "add a provider key of your own", "Provider keys require a pro or enterprise plan"
    public = words(see("/models/gpt-5"))
    assert f"{lacking}: {hint} to call it here" in public
    member = Visitor(world.dana)
    world.acme.plan = "free"
    world.acme.save()
    shown = words(member.open(page(world.acme, "models/gpt-5")))
    assert (f"{lacking}. {plan}" in shown, hint in shown) == (True, False)
    world.acme.plan = "pro"
    world.acme.save()
    count = words(member.open(page(world.acme, "models/gpt-5"))).count(hint)
    row = {"organization": world.acme, "provider": "openai", "encrypted_token": b"x"}
    ProviderKey.objects.create(**row)
    ProviderKey.objects.create(**row | {"provider": "azure", "status": "inactive"})
    assert words(member.open(page(world.acme, "models/gpt-5"))).count(hint) == count - 1


def test_cached_input_saved_the_difference_to_the_price_of_input() -> None:
    card = card_of("gpt-5")
    offer = next(one for one in card.offers if one.prices.input and one.prices.cached_input)
    prices = offer.prices
    assert prices.input is not None
    assert prices.cached_input is not None
    tokens = Decimal(2)
    row = ModelUsage(
        date=ago().date(),
        model="gpt-5",
        provider=offer.provider.id,
        requests=1,
        errors=0,
        cache_hits=0,
        input_tokens=3_000_000,
        output_tokens=0,
        cost=Decimal(9),
        cached_input_cost=tokens * prices.cached_input,
    )
    saved = own_usage(card, [row])
    assert saved.prompt_cache_savings == tokens * (prices.input - prices.cached_input)
    assert (saved.response_cache_savings, saved.cache_savings) == (0, saved.prompt_cache_savings)
    assert own_usage(card, []).cache_savings == 0


def test_up_to_four_models_stand_side_by_side() -> None:
    write(entry(outcomes=[outcome("openai"), outcome("azure", first_token=100, tokens=400)] * 20))
    write(entry(outcomes=[outcome("groq", first_token=1)]))
    answer = see(
        "/models/compare", "model=gpt-5&model=echo&model=gpt-5&model=&model=claude-opus-4-5&model=glm-4.5-flash"
    )
    assert answer.status_code == 200
    assert [one.name for one in answer.context["columns"]] == ["gpt-5", "echo", "claude-opus-4-5", "glm-4.5-flash"]
    best = answer.context["columns"][0].best
    assert (best.first_token.provider, best.speed.provider, best.uptime.value) == (
        *["Microsoft Azure AI Foundry"] * 2,
        1,
    )
    said = words(answer)
    for expected in ("Uptime 100%", "Time to first token", "Tokens per second", "Context", "Free"):
        assert expected.lower() in said.lower()
    assert "Your spend" not in said
    assert answer.context["address"].endswith(
        "/models/compare?model=gpt-5&model=echo&model=claude-opus-4-5&model=glm-4.5-flash"
    )
    # By any of its names, and never the same name twice.
    assert [one.name for one in see("/models/compare", "model=gpt-5-2025-08-07").context["columns"]] == [
        "gpt-5-2025-08-07"
    ]
    assert "No models chosen" in words(see("/models/compare"))


def test_an_unknown_model_is_named_and_the_others_stay() -> None:
    answer = see("/models/compare", "model=gpt-5&model=%3Cscript%3Ex")
    assert (answer.status_code, [one.name for one in answer.context["columns"]]) == (400, ["gpt-5"])
    assert "No provider serves a model called “<script>x”" in words(answer)
    assert b"<script>x" not in answer.content


def test_members_compare_their_own_usage_too(world: World) -> None:
    key = make_key(world.olivia, world.project).key
    write(entry(key, used_model="gpt-5", cost=Decimal("0.25")))
    answer = Visitor(world.dana).open(f"{page(world.acme, 'models/compare')}?model=gpt-5&model=echo")
    assert [(one.name, one.usage.requests) for one in answer.context["columns"]] == [("gpt-5", 1), ("echo", 0)]
    assert "Your spend in 30 days $0.25 $0.00" in words(answer)
    assert Visitor(world.sam).open(f"{page(world.acme, 'models/compare')}?model=gpt-5").status_code == 403


def test_the_way_into_the_console_keeps_the_models(world: World) -> None:
    dana = Visitor(world.dana)
    for query, path in (
        ("model=gpt-5", "models/gpt-5"),
        ("model=gpt-5&model=echo", "models/compare?model=gpt-5&model=echo"),
        ("model=nothing", "models/compare?model=nothing"),
        ("", "models/compare?"),
    ):
        answer = dana.open(f"/app/models?{query}")
        assert (answer.status_code, answer["Location"]) == (302, page(world.acme, path)), query
    assert Visitor().open("/app/models?model=gpt-5")["Location"].startswith("/app/sign-in")


def test_figures_are_of_the_offers_there_are() -> None:
    write(entry(outcomes=[outcome("openai")]))
    now = datetime.now(UTC)
    found = read_performance(["gpt-5"], WINDOWS["24h"], now)
    catalog_cache.current()
    [figures] = provider_figures(card_of("gpt-5"), found["gpt-5"], WINDOWS["24h"], now)
    assert (figures.name, figures.lowest, [bar.style for bar in figures.bars][-1]) == ("OpenAI", "100%", "up")
