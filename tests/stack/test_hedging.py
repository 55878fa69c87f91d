"""Hedging, over the real product: a second provider is asked when the first is late; the first to answer wins, and
the other is closed and paid for what it read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.stack.product import Product, eventually
from tests.stack.upstreams import Upstream

pytestmark = pytest.mark.stack

# USD per million tokens, in and out.
PRICES = {"first": "1", "second": "2"}
CATALOG = f"""
from apps.catalog.models import Model, ModelProvider, Provider
for model in ("fox-1", "fox-2"):
    Model.objects.create(id=model, name=model, mode="chat", input_modalities=["text"], output_modalities=["text"])
for name, price in {PRICES!r}.items():
    Provider.objects.create(id=name, name=name, dialect="openai", auth="bearer", base_url="http://x",
                            api_key_env=name.upper() + "_API_KEY")
    for model in ("fox-1", "fox-2"):
        ModelProvider.objects.create(provider_id=name, model_id=model, model_name="echo", streaming=True,
                                     prices={{"input": price, "output": price}})
"""


@dataclass(frozen=True)
class World:
    """The product and the two providers of `fox-1`, of which the first is the cheaper one."""

    product: Product
    first: Upstream
    second: Upstream

    def ask(
        self, hedge: str | None, request_id: str = "", stream: bool = True, model: str = "fox-1", **headers: str
    ) -> requests.Response:
        """Ask for a stream."""
        sent = {"Authorization": f"Bearer {self.product.demo['apiKey']}", **headers}
        sent |= {} if hedge is None else {"X-Hedge": hedge}
        sent |= {"x-request-id": request_id} if request_id else {}
        content = "hi [[sandbox usage=1000,100]]"
        body = {"model": model, "messages": [{"role": "user", "content": content}], "stream": stream}
        return requests.post(f"{self.product.url}/v1/chat/completions", json=body, headers=sent, timeout=30)

    def answered(self, hedge: str | None, **more: Any) -> tuple[str, list[tuple[str, str, bool]]]:
        """Return the provider that answered a stream, and the attempts."""
        response = self.ask(hedge, **more)
        assert response.status_code == 200, response.text
        assert response.text.endswith("data: [DONE]\n\n")
        chunks = [json.loads(line[6:]) for line in response.text.split("\n") if line.startswith("data: {")]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
        assert text == "You said: hi"
        metadata = next(chunk["metadata"] for chunk in chunks if "metadata" in chunk)
        tried = [(one["provider"], one["error_type"], one["succeeded"]) for one in metadata["routing"]]
        return metadata["used_provider"], tried


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        upstreams = {}
        for name in PRICES:
            upstreams[name] = Upstream()
            stack.callback(upstreams[name].stop)
        environment = {f"{name.upper()}_BASE_URL": f"{one.url}/v1" for name, one in upstreams.items()}
        environment |= {f"{name.upper()}_API_KEY": "secret" for name in upstreams}
        product = Product(tmp_path_factory.mktemp("hedging"), **environment)
        stack.callback(product.stop)
        product.manage("shell", "-c", CATALOG)
        eventually(lambda: product.chat("hi", model="fox-1").status_code == 200)
        yield World(product, **upstreams)


@pytest.fixture
def world(started: World) -> Iterator[World]:
    """The world in which the first provider is late by 1.5 s."""
    started.first.weather("latency=1500")
    yield started
    started.first.weather("")
    started.second.weather("")


def test_the_quicker_one_answers_and_the_late_one_is_closed(world: World) -> None:
    before = len(world.first.journal())
    assert world.answered("100") == ("second", [("first", "hedge_lost", False), ("second", "none", True)])
    asked = eventually(lambda: [one for one in world.first.journal()[before:] if one["endedAt"]])
    assert [one["outcome"] for one in asked] == ["client_closed"]


@pytest.mark.long
def test_both_are_paid_the_late_one_for_the_prompt_it_read(world: World) -> None:
    request_id = uuid4().hex
    world.answered("100", request_id=request_id)
    row = world.product.log_of(request_id)
    own = Decimal(1_100 * 2) / 10**6
    lost = Decimal(str(row["cost"])) - own
    assert row["usedProvider"] == "second"
    assert Decimal(str(row["inputCost"])) == Decimal(1_000 * 2) / 10**6 + lost
    # At one dollar a million tokens: so many as the prompt was estimated at.
    assert lost * 10**6 == (lost * 10**6).to_integral_value()
    assert 5 <= lost * 10**6 <= 50
    world.product.manage("check_ledger")


def test_one_that_is_in_time_is_not_raced(world: World) -> None:
    assert world.answered("5000") == ("first", [("first", "none", True)])


def test_nobody_is_raced_who_did_not_ask_for_it(world: World) -> None:
    assert world.answered(None)[0] == "first"
    assert world.answered("false")[0] == "first"


def test_a_second_call_that_would_cost_too_much_is_not_made(world: World) -> None:
    assert world.answered("100", **{"X-Hedge-Max-Cost": "0.0000001"}) == ("first", [("first", "none", True)])


def test_a_plain_answer_is_not_raced(world: World) -> None:
    assert world.ask("100", stream=False).json()["metadata"]["used_provider"] == "first"


def test_when_the_second_fails_the_first_still_answers(world: World) -> None:
    world.second.weather("status=503")
    assert world.answered("100") == ("first", [("second", "upstream_error", False), ("first", "none", True)])


def test_when_the_first_fails_meanwhile_the_second_answers(world: World) -> None:
    world.first.weather("latency=300 status=503")
    world.second.weather("latency=700")
    assert world.answered("100") == ("second", [("first", "upstream_error", False), ("second", "none", True)])


def test_when_both_fail_the_client_is_told_and_nothing_is_paid(world: World) -> None:
    world.first.weather("latency=300 status=503")
    world.second.weather("latency=500 status=500")
    request_id = uuid4().hex
    assert world.ask("100", request_id=request_id).status_code in {502, 503}
    assert Decimal(str(world.product.log_of(request_id)["cost"])) == 0


def test_late_is_later_than_the_first_provider_usually_is(world: World) -> None:
    world.first.weather("")
    for _ in range(25):
        assert world.answered("true", model="fox-2")[0] == "first", "nobody knows yet what is late"
    world.first.weather("latency=3000")
    eventually(lambda: world.answered("true", model="fox-2")[0] == "second")
