"""Three providers of one model, each a sandbox whose weather is scripted, behind the real product with two workers.

For each scenario the share of requests answered, the latency added and the cost are printed beside those of an oracle
that knows the weather: it asks only the cheapest provider that works.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import pytest
import requests

from tests.stack.product import Product, eventually
from tests.stack.upstreams import Upstream

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(240)]

# USD per million tokens, in and out; a request is 1,000 and 100 tokens.
PRICES = {"alpha": 1.0, "beta": 1.3, "gamma": 3.0}
COSTS = {name: price * 1_100 / 1e6 for name, price in PRICES.items()}
CLIENTS, PAUSE = 6, 0.08
MODELS = ("fox-down", "fox-dead", "fox-hanging", "fox-flaky", "fox-two-down")
WARM = 2.0


@dataclass(frozen=True)
class Answer:
    """The outcome of a request: its time, its duration, the providers asked, the one that answered, and the cost."""

    at: float
    seconds: float
    answered: bool
    asked: tuple[str, ...]
    used: str
    cost: float


@dataclass(frozen=True)
class World:
    """The product, its providers, and the lines to print at the end."""

    product: Product
    upstreams: dict[str, Upstream]
    lines: list[str]

    def run(self, model: str, seconds: float, until: Any = None) -> list[Answer]:
        """Ask, with several clients at once, for so many seconds or until something is true of the answers."""
        answers: list[Answer] = []
        end = time.monotonic() + seconds

        def ask() -> None:
            with requests.Session() as session:
                while time.monotonic() < end and not (until is not None and until(answers)):
                    answers.append(self._ask(session, model))
                    time.sleep(PAUSE)

        clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return sorted(answers, key=lambda one: one.at)

    def _ask(self, session: requests.Session, model: str) -> Answer:
        started = time.monotonic()
        response = session.post(
            f"{self.product.url}/v1/chat/completions",
            json={"model": model, "messages": [{"role": "user", "content": "hi [[sandbox usage=1000,100]]"}]},
            headers={"Authorization": f"Bearer {self.product.demo['apiKey']}"},
            timeout=30,
        )
        took = time.monotonic() - started
        if response.status_code != 200:
            return Answer(started, took, False, (), "", 0.0)
        body = response.json()
        asked = tuple(one["provider"] for one in body["metadata"]["routing"])
        return Answer(started, took, True, asked, body["metadata"]["used_provider"], body["usage"]["cost_usd_total"])

    def tell(self, scenario: str, answers: list[Answer], best: str, usual: float) -> None:
        """Write a scenario's line; `best` is who an oracle would have asked, `usual` seconds what that takes."""
        good = [one for one in answers if one.answered]
        asked = Counter(one.used for one in good)
        cost = sum(one.cost for one in good) / (COSTS[best] * len(good))
        self.lines.append(
            f"{scenario:<28} {len(answers):>5} {100 * len(good) / len(answers):>8.2f}% "
            f"{1000 * (median(one.seconds for one in good) - usual):>+8.0f} "
            f"{1000 * (percentile(good, 0.99) - usual):>+8.0f} {cost:>6.3f}x  "
            + " ".join(f"{name} {100 * count / len(good):.1f}%" for name, count in sorted(asked.items()))
        )


def percentile(answers: list[Answer], share: float) -> float:
    times = sorted(one.seconds for one in answers)
    return times[min(int(share * len(times)), len(times) - 1)]


@pytest.fixture(scope="module")
def upstreams() -> Iterator[dict[str, Upstream]]:
    with ExitStack() as stack:
        found = {}
        for name in PRICES:
            found[name] = upstream = Upstream()
            stack.callback(upstream.stop)
        yield found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, upstreams: dict[str, Upstream]) -> Iterator[World]:
    environment = {f"{name.upper()}_BASE_URL": f"{one.url}/v1" for name, one in upstreams.items()}
    environment |= {f"{name.upper()}_API_KEY": "secret" for name in upstreams}
    product = Product(
        tmp_path_factory.mktemp("simulation"),
        WEB_WORKERS="2",
        RATE_LIMIT_ENTERPRISE="0",
        UPSTREAM_FIRST_BYTE_TIMEOUT="1",
        ROUTING_EXPLORATION="0.01",
        **environment,
    )
    world = World(product, upstreams, [])
    try:
        product.manage("shell", "-c", CATALOG)
        eventually(lambda: product.chat("hi", model="fox-down").status_code == 200)
        yield world
    finally:
        product.stop()
        heads = f"{'scenario':<28} {'asked':>5} {'answered':>9} {'p50 ms':>8} {'p99 ms':>8} {'cost':>7}  who answered"
        sys.stdout.write("\n".join(["", heads, *world.lines, ""]))


CATALOG = f"""
from apps.catalog.models import Model, ModelProvider, Provider
for name in {list(PRICES)!r}:
    Provider.objects.create(id=name, name=name, dialect="openai", auth="bearer", base_url="http://x",
                            api_key_env=name.upper() + "_API_KEY")
# One model a scenario: they have the same providers, and nothing is known of any at first.
for model in {MODELS!r}:
    Model.objects.create(id=model, name=model, mode="chat", input_modalities=["text"], output_modalities=["text"])
    for name, price in {PRICES!r}.items():
        ModelProvider.objects.create(provider_id=name, model_id=model, model_name="echo", streaming=True,
                                     prices={{"input": str(price), "output": str(price)}})
"""


def usual_of(world: World, model: str) -> float:
    """Return how long an answer takes while all is well, in seconds; the cheapest gives nearly all of them."""
    fair = world.run(model, WARM)
    assert all(one.answered for one in fair)
    assert Counter(one.used for one in fair)["alpha"] / len(fair) > 0.9
    return median(one.seconds for one in fair)


def test_one_of_three_is_down_and_comes_back(world: World) -> None:
    alpha = world.upstreams["alpha"]
    usual = usual_of(world, "fox-down")
    world.tell("all is well", world.run("fox-down", 3), "alpha", usual)

    alpha.weather("status=503")
    started = time.monotonic()
    down = world.run("fox-down", 16)
    world.tell("the cheapest answers 503", down, "beta", usual)
    assert sum(one.answered for one in down) / len(down) >= 0.999
    later = [one for one in down if one.at - started > 10]
    assert sum("alpha" in one.asked for one in later) / len(later) < 0.02

    alpha.weather("")
    started = time.monotonic()
    back = world.run("fox-down", 30, until=lambda answers: any(one.used == "alpha" for one in answers))
    world.lines.append(f"  it works again: found after {time.monotonic() - started:.1f} s")
    assert all(one.answered for one in back)
    assert any(one.used == "alpha" for one in back)


def test_one_of_three_is_dead(world: World) -> None:
    usual = usual_of(world, "fox-dead")
    world.upstreams["alpha"].kill()
    dead = world.run("fox-dead", 6)
    world.tell("the cheapest is dead", dead, "beta", usual)
    world.upstreams["alpha"].start()
    assert sum(one.answered for one in dead) / len(dead) >= 0.999


def test_one_of_three_hangs(world: World) -> None:
    usual = usual_of(world, "fox-hanging")
    world.upstreams["alpha"].weather("hang")
    hanging = world.run("fox-hanging", 8)
    world.tell("the cheapest hangs", hanging, "beta", usual)
    world.upstreams["alpha"].weather("")
    assert sum(one.answered for one in hanging) / len(hanging) >= 0.999
    # The first ones waited for a first byte, until the circuit opened.
    assert sum(one.seconds > 1 for one in hanging[len(hanging) // 2 :]) / len(hanging) < 0.02


def test_one_of_three_fails_now_and_then(world: World) -> None:
    usual = usual_of(world, "fox-flaky")
    world.upstreams["alpha"].weather("status=500 p=0.3")
    flaky = world.run("fox-flaky", 6)
    world.tell("the cheapest fails 3 of 10", flaky, "beta", usual)
    world.upstreams["alpha"].weather("")
    assert sum(one.answered for one in flaky) / len(flaky) >= 0.999


def test_two_of_three_are_down(world: World) -> None:
    usual = usual_of(world, "fox-two-down")
    for name in ("alpha", "beta"):
        world.upstreams[name].weather("status=503")
    down = world.run("fox-two-down", 6)
    world.tell("two of three are down", down, "gamma", usual)
    for name in ("alpha", "beta"):
        world.upstreams[name].weather("")
    assert sum(one.answered for one in down) / len(down) >= 0.999
