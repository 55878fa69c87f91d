"""The public catalog: found by words, features and providers, paged, without a query a row."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.console.model_cards import Search, current_cards, search
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS, OutcomeCounts, compute_stats
from tests.support.console_client import words
from tests.support.shipped_catalog import stock

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _catalog() -> None:
    stock()


def see(path: str = "/models", **query: Any) -> Any:
    return Client(raise_request_exception=False).get(path, query, headers={"accept": "text/html"})


def ids_on(response: Any) -> list[str]:
    return [row["card"].model.id for row in response.context["rows"]]


def test_a_page_has_fifty_and_leads_to_the_next(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    see()
    with django_assert_num_queries(0):
        first = see()
    assert len(ids_on(first)) == 50
    second = see(page="2")
    assert 'href="?sort=newest&amp;page=2"' in first.content.decode()
    assert not set(ids_on(first)) & set(ids_on(second))
    # An invalid page number leads to the first page, one past the end to the last.
    assert ids_on(see(page="x")) == ids_on(first)
    assert ids_on(see(page="999")) == ids_on(see(page=str(first.context["last"])))
    assert len(first.content) < 60_000


def test_words_features_providers_and_prices_narrow_the_list() -> None:
    found = search(current_cards(), Search(words="CLAUDE bedrock", features=("tools", "vision"), provider="bedrock"))
    assert found
    assert all("claude" in card.model.id and "bedrock" in card.providers for card in found)
    assert all({"tools", "vision"} <= set(card.features) for card in found)
    assert ids_on(see(q="echo-fast")) == ["echo-fast"]
    assert ids_on(see(q="painter", mode="chat")) == []
    assert set(ids_on(see(q="sandbox", free="true", mode="chat"))) == {"free"}
    shown = see(q="no such thing at all")
    assert "No matching models" in words(shown)


def test_a_search_keeps_its_words_from_page_to_page() -> None:
    shown = see(q="a", sort="price", feature="tools", free="")
    assert 'href="?q=a&amp;sort=price&amp;feature=tools&amp;page=2"' in shown.content.decode()
    prices = [row["card"].input_price + (row["card"].output_price or 0) for row in shown.context["rows"]]
    assert prices == sorted(prices)


def test_what_is_looked_for_is_escaped() -> None:
    assert b"<script>x" not in see(q='"><script>x').content


def test_a_model_has_providers_prices_uptime_and_a_snippet_in_each_language() -> None:
    counts = OutcomeCounts()
    counts.add_success(120, 10, 1.0)
    counts.failed += 1
    CIRCUIT_BREAKERS._stats["sandbox/echo"] = compute_stats(counts)
    try:
        shown = see("/models/echo")
        listed = see(q="echo-fast echo")
    finally:
        CIRCUIT_BREAKERS.reset()
    said = words(shown)
    for expected in ("Sandbox", "sandbox/echo", "Input: $0.15 per million", "Output: $0.60 per million", "50%"):
        assert expected in said
    assert "120 ms" in said
    for expected in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "$GATEWAY_API_KEY", "process.env"):
        assert expected in shown.content.decode()
    assert "no traffic" not in said
    assert listed.status_code == 200
    # By an alias as well.
    assert see("/models/gpt-5-2025-08-07").context["card"].model.id == "gpt-5"


def test_a_model_that_is_none_is_a_404_page() -> None:
    answer = see("/models/nothing")
    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


def test_no_script_stands_in_the_pages() -> None:
    for path in ("/models", "/models/echo", "/"):
        answer = see(path)
        assert "script-src 'self';" in answer.headers["Content-Security-Policy"]
        assert b"style=" not in answer.content
        assert b"<script>" not in answer.content


def test_a_model_that_credits_do_not_reach_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GROQ_API_KEY", "XAI_API_KEY", "CLOUDFLARE_ACCOUNT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SANDBOX_API_KEY", "sandbox-secret")
    monkeypatch.setenv("CLOUDFLARE_API_KEY", "cf-operator")
    assert "add a provider key of your own" not in words(see("/models/echo"))
    said = words(see("/models/gpt-oss-20b"))
    assert "The operator has no credential for it: add a provider key of your own to call it here" in said
    assert "The operator has not set its region or account: add a provider key of your own to call it here" in said
    listed = see(q="grok-4")
    assert all(row["needs_own_key"] for row in listed.context["rows"])
    assert "Needs a provider key" in words(listed)
    assert ids_on(see(q="grok-4", callable="true")) == []
    assert ids_on(see(q="echo-fast", callable="true")) == ["echo-fast"]
    many = see(q="sandbox", callable="true", page="1")
    assert all("sandbox" in row["card"].providers for row in many.context["rows"])
