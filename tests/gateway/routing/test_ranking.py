"""Ranking and access rules: pure decisions, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from apps.catalog.offers import CatalogProvider, Offer
from apps.gateway.access.credentials import CREDITS, Credential
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import Candidates
from apps.gateway.routing.circuit_breaker import NO_TRAFFIC, ProviderStats
from apps.gateway.routing.ranking import Ranking, RequestProfile, rank
from apps.kernel.ids import new_id
from apps.kernel.prices import PriceCard, PriceTier
from apps.keys.iam import AccessRule, first_refusal


def candidate(provider: str, price: str, *, model: str = "m", weight: float = 1.0) -> Candidate:
    """Return an offer of a model at a price per million tokens, in and out."""
    offer = Offer(
        provider=CatalogProvider(provider, provider, "openai", "bearer", "http://x", "X", {}, weight),
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


SHAPE = RequestProfile(prompt_tokens=1_000, answer_tokens=250)


def ranked(
    *candidates: Candidate,
    requested: str | None = None,
    no_fallback: bool = False,
    stats_of: Mapping[str, ProviderStats] | None = None,
    **profile: Any,
) -> Ranking:
    """Rank candidates; `stats_of` are by provider, and a provider without one is unknown."""
    known = {f"{name}/m": stats for name, stats in (stats_of or {}).items()}
    return rank(
        Candidates(requested, candidates),
        structs.replace(SHAPE, **profile),
        lambda mapping: known.get(mapping, NO_TRAFFIC),
        no_fallback=no_fallback,
    )


def order(*candidates: Candidate, **given: Any) -> tuple[list[str], str]:
    """Return who is tried in which order, and the reason given."""
    ranking = ranked(*candidates, **given)
    return [one.provider_id for one in ranking.candidates], ranking.explanation["selectionReason"]


def stats(requests: int = 100, uptime: float = 100.0, **figures: Any) -> ProviderStats:
    """Return what the last five minutes were like."""
    return ProviderStats(**{"requests": requests, "fresh_requests": requests, "uptime": uptime, **figures})


def test_where_nothing_is_known_the_cheapest_comes_first() -> None:
    assert order(candidate("dear", "2"), candidate("cheap", "1")) == (["cheap", "dear"], "price-only-no-metrics")


def test_a_weight_below_one_lowers_the_score() -> None:
    assert order(candidate("a", "1", weight=0.6), candidate("b", "2"))[0] == ["b", "a"]
    assert order(candidate("a", "1", weight=0.8), candidate("b", "2"))[0] == ["a", "b"]


def test_a_weight_of_eight_tenths_lowers_it_by_twenty_percent() -> None:
    plain, weighted = (
        ranked(candidate("a", "1", weight=weight)).explanation["providerScores"][0]["score"] for weight in (1.0, 0.8)
    )
    assert (plain, weighted) == (1.0, 0.8)


def test_weight_zero_is_out_of_automatic_routing_but_can_be_named() -> None:
    both = candidate("a", "1", weight=0), candidate("b", "2")
    assert order(*both)[0] == ["b"]
    assert order(*both, requested="a") == (["a", "b"], "direct-provider-specified")
    assert order(both[0]) == (["a"], "single-provider-available")


def test_without_fallback_there_is_one_candidate() -> None:
    assert order(candidate("a", "2"), candidate("b", "1"), requested="a", no_fallback=True)[0] == ["a"]


def test_a_score_is_the_weighted_sum_of_price_uptime_throughput_and_latency() -> None:
    ranking = ranked(
        candidate("a", "1"),
        candidate("b", "2"),
        stats_of={
            "a": stats(uptime=90, latency=400.0, throughput=50.0),
            "b": stats(latency=200.0, throughput=100.0),
        },
        streaming=True,
    )
    assert ranking.explanation == {
        "availableProviders": ["b", "a"],
        "selectedProvider": "b",
        "selectionReason": "weighted-score",
        "providerScores": [
            # 0.5 x 1.01 / 2.01 + 0.3 + 0.1 + 0.1
            {"providerId": "b", "score": 0.7512, "price": 2.0, "uptime": 100.0, "latency": 200.0, "throughput": 100.0},
            # 0.5 x 1 + 0.3 x (90 - 80) / 20 + 0.1 x 50 / 100 + 0.1 x 200 / 400
            {"providerId": "a", "score": 0.75, "price": 1.0, "uptime": 90.0, "latency": 400.0, "throughput": 50.0},
        ],
    }


def test_the_first_token_of_a_plain_answer_interests_nobody() -> None:
    slow_and_quick = {"a": stats(latency=9_000.0), "b": stats(latency=100.0)}
    same_price = candidate("a", "1"), candidate("b", "1")
    assert order(*same_price, stats_of=slow_and_quick)[0] == ["a", "b"]
    assert order(*same_price, stats_of=slow_and_quick, streaming=True)[0] == ["b", "a"]


def test_prices_are_those_of_a_request_of_this_size() -> None:
    long = PriceTier(above_input_tokens=200_000, input=Decimal(10))
    tiered = candidate("tiered", "1")
    tiered = replace(tiered, offer=replace(tiered.offer, prices=PriceCard(input=Decimal(1), tiers=(long,))))
    plain = candidate("plain", "2")
    assert order(tiered, plain)[0] == ["tiered", "plain"]
    assert order(tiered, plain, prompt_tokens=300_000)[0] == ["plain", "tiered"]


class TestANamedProvider:
    both = candidate("named", "1"), candidate("dear", "9"), candidate("dearer", "10")

    def test_is_passed_over_below_ninety_percent_for_the_cheapest_better_one(self) -> None:
        stats_of = {"named": stats(uptime=89.9), "dear": stats(uptime=95)}
        ranking = ranked(*self.both, requested="named", stats_of=stats_of)
        assert ranking.candidates[0].provider_id == "dear"
        assert ranking.explanation["selectionReason"] == "low-uptime-fallback"
        assert ranking.explanation["originalProvider"] == "named"
        assert ranking.explanation["originalProviderUptime"] == 89.9

    def test_stays_at_ninety(self) -> None:
        reason = order(*self.both, requested="named", stats_of={"named": stats(uptime=90)})[1]
        assert reason == "direct-provider-specified"

    def test_stays_where_nobody_is_better(self) -> None:
        worse = {name: stats(uptime=50) for name in ("named", "dear", "dearer")}
        assert order(*self.both, requested="named", stats_of=worse)[1] == "direct-provider-specified"

    def test_stays_when_the_client_wants_no_fallback(self) -> None:
        found = order(*self.both, requested="named", stats_of={"named": stats(uptime=1)}, no_fallback=True)
        assert found == (["named"], "direct-provider-specified")


class TestAnOpenCircuit:
    both = candidate("cheap", "1"), candidate("dear", "2")

    def test_gets_nothing_while_another_works(self) -> None:
        assert order(*self.both, stats_of={"cheap": stats(open=True)})[0] == ["dear", "cheap"]
        named = order(*self.both, requested="cheap", stats_of={"cheap": stats(uptime=99, open=True)})
        assert named == (["dear", "cheap"], "low-uptime-fallback")

    def test_gets_one_when_it_is_due(self) -> None:
        ranking = ranked(*self.both, stats_of={"cheap": stats(open=True, probe_due=True)})
        assert [one.provider_id for one in ranking.candidates] == ["cheap", "dear"]
        assert (ranking.explanation["selectionReason"], ranking.probe) == ("circuit-probe", True)

    def test_gets_everything_when_it_is_all_there_is(self) -> None:
        ranking = ranked(candidate("only", "1"), stats_of={"only": stats(open=True)})
        assert ([one.provider_id for one in ranking.candidates], ranking.probe) == (["only"], False)


class TestAConversation:
    alike = tuple(candidate(name, "1") for name in ("a", "b", "c", "d"))

    def test_stays_with_its_provider(self) -> None:
        chosen = {order(*self.alike, session="one", random_draw=random_draw / 10)[0][0] for random_draw in range(10)}
        assert len(chosen) == 1
        assert order(*self.alike, session="one")[1] == "session-affinity"

    def test_others_are_elsewhere(self) -> None:
        assert {order(*self.alike, session=str(number))[0][0] for number in range(50)} == {"a", "b", "c", "d"}

    def test_moves_only_if_its_provider_goes(self) -> None:
        before = {str(number): order(*self.alike, session=str(number))[0][0] for number in range(50)}
        after = {session: order(*self.alike[1:], session=session)[0][0] for session in before}
        assert {session for session in before if before[session] != after[session]} == {
            session for session in before if before[session] == "a"
        }

    def test_leaves_one_that_is_hardly_up_or_much_dearer(self) -> None:
        for number in range(20):
            session = str(number)
            assert order(*self.alike[:2], session=session, stats_of={"a": stats(uptime=84)})[0][0] == "b"
            assert order(candidate("a", "2"), candidate("b", "1"), session=session)[0][0] == "b"


class TestExploration:
    both = candidate("cheap", "1"), candidate("idle", "1.5")
    busy = {"cheap": stats()}

    def test_a_small_share_goes_to_an_idle_provider(self) -> None:
        assert order(*self.both, stats_of=self.busy, random_draw=0.009) == (["idle", "cheap"], "random-exploration")
        assert order(*self.both, stats_of=self.busy, random_draw=0.01)[0] == ["cheap", "idle"]

    def test_but_not_when_it_is_twice_as_dear_or_known(self) -> None:
        assert order(self.both[0], candidate("idle", "2.1"), stats_of=self.busy, random_draw=0.0)[0][0] == "cheap"
        known = {**self.busy, "idle": stats(requests=5)}
        assert order(*self.both, stats_of=known, random_draw=0.0)[0][0] == "cheap"

    def test_nor_of_a_conversation_or_a_request_that_names_its_provider(self) -> None:
        assert order(*self.both, stats_of=self.busy, random_draw=0.0, session="s")[0][0] == "cheap"
        assert order(*self.both, stats_of=self.busy, random_draw=0.0, requested="cheap")[0][0] == "cheap"


class TestCredentials:
    several = tuple(
        replace(candidate("p", "1"), credential=Credential(CREDITS, service_secret="s", label=f"p#{number}"))
        for number in range(4)
    )

    def test_all_of_a_provider_are_tried_also_without_fallback(self) -> None:
        ranking = ranked(*self.several, candidate("q", "2"), requested="p", no_fallback=True)
        assert {one.credential.name for one in ranking.candidates} == {"p#0", "p#1", "p#2", "p#3"}

    def test_requests_are_spread_over_them(self) -> None:
        first = {
            ranked(*self.several, random_draw=random_draw / 50).candidates[0].credential.name
            for random_draw in range(50)
        }
        assert first == {"p#0", "p#1", "p#2", "p#3"}

    def test_a_conversation_keeps_its_own(self) -> None:
        first = {
            ranked(*self.several, random_draw=n / 50, session="s").candidates[0].credential.name for n in range(50)
        }
        assert len(first) == 1

    def test_one_that_rests_comes_last(self) -> None:
        for number in range(20):
            ranking = ranked(*self.several, random_draw=number / 20, is_credential_usable=lambda name: name != "p#2")
            assert ranking.candidates[-1].credential.name == "p#2"


def rule(kind: str, **value: object) -> AccessRule:
    """Return an active rule."""
    return AccessRule(new_id(), kind, dict(value))


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
def test_all_rules_must_agree(rules: list[AccessRule], refused: str | None) -> None:
    refusal = first_refusal(rules, candidate("p", "1"))
    assert (refusal.type if refusal else None) == refused


def test_free_is_free() -> None:
    free = candidate("p", "0")
    assert first_refusal([rule("allow_pricing", pricingType="free")], free) is None
    assert first_refusal([rule("deny_pricing", pricingType="free")], free) is not None
    assert replace(free.offer, prices=PriceCard()).prices.free is False
