"""Three hundred requests at once on one dollar, while processes die: spending exceeds the dollar by no more than the
estimates of requests in flight were wrong, and no hold remains."""

from __future__ import annotations

import threading
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from tests.stack.product import Product, eventually
from tests.stack.spending_keys import (
    LESS,
    MORE,
    assert_nothing_is_held,
    key_with_credits,
    key_with_limit,
    manage,
)

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]

AT_ONCE = 300
DOLLAR = Decimal(1)
# Streams hold more as they grow, which can go wrong in more ways than the one hold of a plain answer.
STREAM = pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.long), True])


@pytest.fixture
def product(keeping_product: Product) -> Product:
    """A server with two web workers, one of which is killed."""
    return keeping_product


def assert_within(costs: list[Decimal], estimate: Decimal) -> None:
    """Assert that a dollar was not passed by more than what those in flight cost beyond their estimates."""
    assert len(costs) > 50
    assert sum(costs) <= DOLLAR + sum(cost - estimate for cost in costs if cost > estimate)


def test_a_key_with_a_limit_of_one_dollar(product: Product) -> None:
    spending_key = key_with_limit(product)
    spending_key.patient = True
    before, estimate = spending_key.credits(), spending_key.estimate()
    spending_key.wave([f"{LESS} latency=1500"] * AT_ONCE)
    assert set(spending_key.outcomes) == {"answered", "usage_limit_exceeded"}
    # Those in flight together never hold more than a dollar: had all been, it would be so many.
    assert spending_key.outcomes["answered"] >= int(DOLLAR / estimate)
    first = spending_key.costs()
    assert sum(first) <= DOLLAR
    # Holds beyond the cost are free to spend: repeated requests spend all but less than one request's cost.
    while spending_key.ask(LESS) == "answered":
        spending_key.outcomes["answered"] += 1
        if spending_key.outcomes["answered"] % 5 == 0:
            eventually(lambda: len(spending_key.logs()) == spending_key.outcomes["answered"])
    costs = spending_key.costs()
    assert DOLLAR - estimate * 6 < sum(costs) <= DOLLAR
    assert before - spending_key.credits() == sum(costs)
    assert len(costs) == spending_key.outcomes["answered"]
    assert_nothing_is_held(product)


def test_a_limit_that_reroutes_lets_exactly_what_fits_reach_each_model(product: Product) -> None:
    spending_key = key_with_credits(product, "100", max_tokens=16)
    spending_key.patient = True
    own = {"organizationId": spending_key.organization_id, "scope": "organization", "counts": "requests"}
    for name, model, amount, more in (
        ("budget", "echo", "150", {"action": "reroute", "rerouteModels": ["echo-fast"]}),
        ("cheap", "echo-fast", "100", {}),
    ):
        fields = {**own, "name": name, "model": model, "window": "lifetime", "amount": amount, **more}
        manage(product, spending_key.session, "POST", "/limits", **fields)
    spending_key.wave(["usage=10,10 latency=200"] * 400)
    assert spending_key.outcomes == {"answered": 250, "limit_reached": 150}
    assert len(spending_key.costs()) == 250
    models = Counter((row["requestedModel"], row["usedModel"]) for row in spending_key.logs())
    assert models == {("sandbox/echo", "echo"): 150, ("sandbox/echo", "echo-fast"): 100}
    shown = manage(product, spending_key.session, "GET", f"/limits?organizationId={spending_key.organization_id}")
    assert [(one["state"]["used"], one["state"]["held"]) for one in shown["limits"]] == [("150", "0"), ("100", "0")]
    assert product.manage("check_limits") == "Every counter equals the sum of its requests.\n"
    assert_nothing_is_held(product)


def test_an_organization_with_one_dollar_while_a_worker_dies(product: Product) -> None:
    spending_key = key_with_credits(product)
    spending_key.patient = True
    estimate = spending_key.estimate()
    assert spending_key.credits() == DOLLAR
    scripts = [f"{MORE if number % 2 else LESS} latency=1500" for number in range(AT_ONCE)]
    wave = threading.Thread(target=spending_key.wave, args=(scripts,))
    wave.start()
    eventually(lambda: len(in_flight(product)) > 20)
    product.kill("gunicorn")
    wave.join(90)
    assert spending_key.outcomes["broken"] > 0
    assert spending_key.outcomes["insufficient_credits"] > 0
    assert set(spending_key.outcomes) <= {"answered", "broken", "insufficient_credits"}
    # The sweeper gives back what the dead worker held, after its lease.
    assert_nothing_is_held(product)
    costs = spending_key.costs()
    assert_within(costs, estimate)
    assert DOLLAR - spending_key.credits() == sum(costs)
    rows = Counter(row["unifiedFinishReason"] for row in spending_key.logs())
    assert rows["completed"] >= spending_key.outcomes["answered"]
    assert sum(rows.values()) <= spending_key.outcomes["answered"] + spending_key.outcomes["broken"]
    # The remaining amount can be spent, and no more.
    spending_key.outcomes.clear()
    spending_key.wave([MORE] * AT_ONCE)
    costs = spending_key.costs()
    assert_within(costs, estimate)
    assert spending_key.credits() < estimate
    assert DOLLAR - spending_key.credits() == sum(costs)
    assert_nothing_is_held(product)


CENT = DOLLAR / 100
# The possible error of a small prompt's estimate, and a token of rounding, in USD.
SLIP = Decimal("0.00005")


@STREAM
def test_a_cent_is_not_overspent_by_fifteen_long_answers_at_once(product: Product, stream: bool) -> None:
    spending_key = key_with_credits(product, "0.01", max_tokens=None, stream=stream)
    spending_key.wave(["kb=400 gap=1"] * 15)
    assert spending_key.outcomes["answered"] > 0
    assert set(spending_key.outcomes) <= {"answered", "insufficient_credits"}
    costs = spending_key.costs()
    assert sum(costs) <= CENT + SLIP * len(costs)
    assert CENT - spending_key.credits() == sum(costs)
    assert all(row["unifiedFinishReason"] == "length_limit" for row in spending_key.logs())
    assert_nothing_is_held(product)


@STREAM
def test_four_hundred_at_once_that_count_unseen_do_not_pass_five_cents(product: Product, stream: bool) -> None:
    """Their provider heeds a limit; without one it counts 40,000 tokens behind four words."""
    product.manage("shell", "-c", LONG)
    spending_key = key_with_credits(product, "0.05", model="sandbox/json", max_tokens=None, stream=stream)
    spending_key.wave(["words=4 hidden=40000 latency=1500"] * 400)
    assert spending_key.outcomes["answered"] >= 15
    assert set(spending_key.outcomes) <= {"answered", "insufficient_credits", "overloaded", "broken"}
    costs = spending_key.costs()
    assert sum(costs) <= CENT * 5 + SLIP * len(costs)
    assert CENT * 5 - spending_key.credits() == sum(costs)
    assert {row["unifiedFinishReason"] for row in spending_key.logs()} == {"length_limit"}
    assert_nothing_is_held(product)


LONG = """
from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
prices = {"input": "0.15", "output": "0.4"}
ModelProvider.objects.filter(model_id="json").update(prices=prices, max_output=65536, context_length=200000)
generation.bump(generation.CATALOG)
"""
DEAR = """
from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
prices = {"input": "15", "output": "75"}
ModelProvider.objects.filter(model_id="tools").update(prices=prices, max_output=131072, context_length=200000)
generation.bump(generation.CATALOG)
"""


@STREAM
def test_twenty_at_once_on_a_dollar_of_a_dear_model_are_all_answered(product: Product, stream: bool) -> None:
    product.manage("shell", "-c", DEAR)
    spending_key = key_with_credits(product, "1", model="sandbox/tools", max_tokens=None, stream=stream)
    spending_key.wave(["words=60 latency=1500"] * 20)
    assert spending_key.outcomes == {"answered": 20}
    costs = spending_key.costs()
    assert (len(costs), sum(costs)) == (20, DOLLAR - spending_key.credits())
    assert_nothing_is_held(product)


@pytest.mark.long
def test_streams_whose_worker_dies_after_they_held_more_leave_nothing_held(product: Product) -> None:
    spending_key = key_with_credits(product, "1", max_tokens=None, stream=True)
    streams, first_part = 8, 4_096 * 600
    wave = threading.Thread(target=spending_key.wave, args=(["kb=200 gap=150"] * streams,))
    wave.start()
    product.manage("shell", "-c", HELD.format(spending_key.organization_id, streams * first_part * 3 // 2))
    product.kill("gunicorn")
    wave.join(120)
    assert spending_key.outcomes["broken"] > 0
    assert_nothing_is_held(product)
    assert DOLLAR - spending_key.credits() == sum(spending_key.costs())


# Waits until so much is held.
HELD = """
from apps.billing import balances
from apps.kernel.valkey.redis import client
from tests.stack.product import eventually
eventually(lambda: int(client().hget(balances.key("organization", "{}"), "held") or 0) >= {})
"""


def in_flight(product: Product) -> list[dict[str, Any]]:
    """Return what the sandbox is answering."""
    return [one for one in product.sandbox("GET", "/sandbox/requests")["requests"] if one["outcome"] is None]
