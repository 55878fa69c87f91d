"""Three hundred at once on one dollar: nobody spends past it by more than the estimates of those in flight were wrong,
whoever dies meanwhile, and nothing stays held."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.stack.product import Product, eventually
from tests.stack.purses import (
    LESS,
    MORE,
    assert_nothing_is_held,
    purse_with_credits,
    purse_with_limit,
)

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]

AT_ONCE = 300
DOLLAR = Decimal(1)
# Streams hold more as they grow, which can go wrong in more ways than the one hold of a plain answer.
STREAM = pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.long), True])


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server with two web workers, to be harmed."""
    product = Product(tmp_path_factory.mktemp("spending"), WEB_WORKERS="2", RATE_LIMIT_ENTERPRISE="0")
    yield product
    product.stop()


def assert_within(costs: list[Decimal], estimate: Decimal) -> None:
    """Assert that a dollar was not passed by more than what those in flight cost beyond their estimates."""
    assert len(costs) > 50
    assert sum(costs) <= DOLLAR + sum(cost - estimate for cost in costs if cost > estimate)


def test_a_key_with_a_limit_of_one_dollar(product: Product) -> None:
    purse = purse_with_limit(product)
    purse.patient = True
    before, estimate = purse.credits(), purse.estimate()
    purse.wave([f"{LESS} latency=1500"] * AT_ONCE)
    assert set(purse.outcomes) == {"answered", "usage_limit_exceeded"}
    # Those in flight together never hold more than a dollar: had all been, it would be so many.
    assert purse.outcomes["answered"] >= int(DOLLAR / estimate)
    first = purse.costs()
    assert sum(first) <= DOLLAR
    # What was held beyond the cost can be spent: asked again and again, all but the last request's worth is.
    while purse.ask(LESS) == "answered":
        purse.outcomes["answered"] += 1
        if purse.outcomes["answered"] % 5 == 0:
            purse.costs()
    costs = purse.costs()
    assert DOLLAR - estimate * 6 < sum(costs) <= DOLLAR
    assert before - purse.credits() == sum(costs)
    assert len(costs) == purse.outcomes["answered"]
    assert_nothing_is_held(product)


def test_an_organization_with_one_dollar_while_a_worker_dies(product: Product) -> None:
    purse = purse_with_credits(product)
    purse.patient = True
    estimate = purse.estimate()
    assert purse.credits() == DOLLAR
    scripts = [f"{MORE if number % 2 else LESS} latency=1500" for number in range(AT_ONCE)]
    wave = threading.Thread(target=purse.wave, args=(scripts,))
    wave.start()
    eventually(lambda: len(in_flight(product)) > 20, patience=30)
    product.kill("gunicorn")
    wave.join(90)
    assert purse.outcomes["broken"] > 0
    assert purse.outcomes["insufficient_credits"] > 0
    assert set(purse.outcomes) <= {"answered", "broken", "insufficient_credits"}
    # The sweeper gives back what the dead worker held, after its lease.
    assert_nothing_is_held(product)
    costs = purse.costs()
    assert_within(costs, estimate)
    assert DOLLAR - purse.credits() == sum(costs)
    rows = Counter(row["unifiedFinishReason"] for row in purse.logs())
    assert rows["completed"] >= purse.outcomes["answered"]
    assert sum(rows.values()) <= purse.outcomes["answered"] + purse.outcomes["broken"]
    # What is left can be spent, and no more.
    purse.outcomes.clear()
    purse.wave([MORE] * AT_ONCE)
    costs = purse.costs()
    assert_within(costs, estimate)
    assert purse.credits() < estimate
    assert DOLLAR - purse.credits() == sum(costs)
    assert_nothing_is_held(product)


CENT = DOLLAR / 100
# What the estimate of a small prompt may be wrong by, and a token of rounding, in USD.
SLIP = Decimal("0.00005")


@STREAM
def test_a_cent_is_not_overspent_by_fifteen_long_answers_at_once(product: Product, stream: bool) -> None:
    purse = purse_with_credits(product, "0.01", max_tokens=None, stream=stream)
    purse.wave(["kb=400 gap=1"] * 15)
    assert purse.outcomes["answered"] > 0
    assert set(purse.outcomes) <= {"answered", "insufficient_credits"}
    costs = purse.costs()
    assert sum(costs) <= CENT + SLIP * len(costs)
    assert CENT - purse.credits() == sum(costs)
    assert all(row["unifiedFinishReason"] == "length_limit" for row in purse.logs())
    assert_nothing_is_held(product)


DEAR = """
from apps.catalog.models import ModelProvider
from apps.kernel import generation
prices = {"input": "15", "output": "75"}
ModelProvider.objects.filter(model_id="tools").update(prices=prices, max_output=131072, context_length=200000)
generation.bump(generation.CATALOG)
"""


@STREAM
def test_twenty_at_once_on_a_dollar_of_a_dear_model_are_all_answered(product: Product, stream: bool) -> None:
    product.manage("shell", "-c", DEAR)
    purse = purse_with_credits(product, "1", model="sandbox/tools", max_tokens=None, stream=stream)
    purse.wave(["words=60 latency=1500"] * 20)
    assert purse.outcomes == {"answered": 20}
    costs = purse.costs()
    assert (len(costs), sum(costs)) == (20, DOLLAR - purse.credits())
    assert_nothing_is_held(product)


@pytest.mark.long
def test_streams_whose_worker_dies_after_they_held_more_leave_nothing_held(product: Product) -> None:
    purse = purse_with_credits(product, "1", max_tokens=None, stream=True)
    streams, first_part = 8, 4_096 * 600
    wave = threading.Thread(target=purse.wave, args=(["kb=200 gap=150"] * streams,))
    wave.start()
    waited = product.manage("shell", "-c", HELD.format(purse.organization_id, streams * first_part * 3 // 2))
    assert waited.endswith("HELD\n"), waited
    product.kill("gunicorn")
    wave.join(120)
    assert purse.outcomes["broken"] > 0
    assert_nothing_is_held(product)
    assert DOLLAR - purse.credits() == sum(purse.costs())


# Waits until so much is held.
HELD = """
import time
from apps.billing import balances
from apps.kernel.redis import client
until = time.monotonic() + 60
while int(client().hget(balances.key("organization", "{}"), "held") or 0) < {} and time.monotonic() < until:
    time.sleep(0.1)
print("HELD" if time.monotonic() < until else "TOO LITTLE")
"""


def in_flight(product: Product) -> list[dict[str, Any]]:
    """Return what the sandbox is answering."""
    return [one for one in product.sandbox("GET", "/sandbox/requests")["requests"] if one["outcome"] is None]
