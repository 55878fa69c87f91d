"""Ranking and access rules: pure decisions, as tables."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from apps.catalog.offers import Offer, Provider
from apps.gateway.candidates import Candidate, Candidates
from apps.gateway.credentials import CREDITS, Credential
from apps.gateway.routing import rank
from apps.kernel.ids import new_id
from apps.kernel.prices import PriceCard
from apps.keys.iam import Rule, first_refusal


def candidate(provider: str, price: str, *, model: str = "m", weight: float = 1.0) -> Candidate:
    """Return an offer of a model at a price per million tokens, in and out."""
    offer = Offer(
        provider=Provider(provider, provider, "openai", "bearer", "http://x", "X", {}, weight),
        model_id=model,
        model_name=model,
        prices=PriceCard(input=Decimal(price), output=Decimal(price)),
        context_length=None,
        max_output=None,
        streaming=True,
        cancellation=True,
        vision=True,
        tools=True,
        parallel_tools=True,
        tool_choice=True,
        reasoning=True,
        structured_outputs=True,
        json_output=True,
        web_search=True,
        prompt_cache=True,
        temperature=True,
        stability="stable",
        facts={},
        deprecated_at=None,
        deactivated_at=None,
        priority=1.0,
        active=True,
    )
    return Candidate(offer, Credential(CREDITS, service_secret="s"), model)


def order(*candidates: Candidate, requested: str | None = None, no_fallback: bool = False) -> tuple[list[str], str]:
    """Return who is tried in which order, and the reason given."""
    ranking = rank(Candidates(requested, candidates), no_fallback=no_fallback)
    return [one.provider_id for one in ranking.candidates], ranking.explanation["selectionReason"]


def test_the_cheapest_comes_first() -> None:
    assert order(candidate("dear", "2"), candidate("cheap", "1")) == (["cheap", "dear"], "weighted-score")


def test_a_weight_below_one_lowers_the_score() -> None:
    assert order(candidate("a", "1", weight=0.4), candidate("b", "2"))[0] == ["b", "a"]
    assert order(candidate("a", "1", weight=0.8), candidate("b", "2"))[0] == ["a", "b"]


def test_weight_zero_is_out_of_automatic_routing_but_can_be_named() -> None:
    both = candidate("a", "1", weight=0), candidate("b", "2")
    assert order(*both)[0] == ["b"]
    assert order(*both, requested="a") == (["a", "b"], "direct-provider-specified")
    assert order(both[0]) == (["a"], "single-provider-available")


def test_without_fallback_there_is_one_candidate() -> None:
    assert order(candidate("a", "2"), candidate("b", "1"), requested="a", no_fallback=True)[0] == ["a"]


def test_a_free_offer_does_not_make_the_others_worthless() -> None:
    ranking = rank(Candidates(None, (candidate("free", "0"), candidate("paid", "1"))), no_fallback=False)
    assert [(one["providerId"], one["score"]) for one in ranking.explanation["providerScores"]] == [
        ("free", 1.0),
        ("paid", 0.0099),
    ]


def rule(kind: str, **value: object) -> Rule:
    """Return an active rule."""
    return Rule(new_id(), kind, dict(value))


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ([], None),
        ([rule("allow_models", models=["m"])], None),
        ([rule("allow_models", models=["other"])], "allow_models"),
        ([rule("allow_models", models=["other"]), rule("allow_models", models=["m"])], None),
        ([rule("allow_models", models=["m"]), rule("deny_models", models=["m"])], "deny_models"),
        ([rule("allow_models", models=["m"]), rule("allow_providers", providers=["q"])], "allow_providers"),
        ([rule("allow_models", models=["m"]), rule("allow_providers", providers=["p"])], None),
        ([rule("deny_providers", providers=["p"])], "deny_providers"),
        ([rule("allow_pricing", pricingType="paid")], None),
        ([rule("allow_pricing", pricingType="free")], "allow_pricing"),
        ([rule("deny_pricing", pricingType="paid")], "deny_pricing"),
        ([rule("allow_pricing", maxInputPrice=1)], None),
        ([rule("allow_pricing", maxInputPrice=0.99)], "allow_pricing"),
        ([rule("allow_pricing", pricingType="paid", maxOutputPrice="0.5")], "allow_pricing"),
    ],
)
def test_all_rules_must_agree(rules: list[Rule], refused: str | None) -> None:
    refusal = first_refusal(rules, candidate("p", "1"))
    assert (refusal.type if refusal else None) == refused


def test_free_is_free() -> None:
    free = candidate("p", "0")
    assert first_refusal([rule("allow_pricing", pricingType="free")], free) is None
    assert first_refusal([rule("deny_pricing", pricingType="free")], free) is not None
    assert replace(free.offer, prices=PriceCard()).prices.free is False
